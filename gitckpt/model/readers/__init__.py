"""Documents read: back into checkpoints, table by table with the place of each mistake, as JSON, and compared.

Doors:
    codec: a document → a checkpoint, and its fields.
    fence: what keeps one bad document from ending a command that reads many.
    table: the keys of one table, of any TOML.
    jsonable: a checkpoint as JSON.
    statediff: what differs between two states.
"""
