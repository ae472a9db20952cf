"""The formats of other tools: parse and write their checkpoint files.

Public modules:
    detection: detects the format of a file; has the names of all formats.
    content: `FileRecord`, the parsed content of a file of any format.
    rlm_act: checkpoints of rlm-act, in the current and the older format.
    forge: runs of forge.
    quasar: checkpoints of quasar, and states of its nebulas (sets of tasks).
    superpowers: the metadata of tracks (units of work of superpowers).
"""
