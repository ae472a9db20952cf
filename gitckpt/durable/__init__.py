"""Floor 3, durable runs: pipelines, and what drives and describes them."""
