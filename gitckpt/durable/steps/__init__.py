"""The step protocol: what agents and scripts that gitckpt did not start report of their work, and where it goes on."""
