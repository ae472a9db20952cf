"""The formats of other tools, pure: from the bytes of a file to what it becomes, and from a checkpoint to the bytes of a file.

Doors:
    detection: which format a file has, and the names of all.
    content: `Record`, what one file becomes.
    rlm_act: rlm-act's checkpoints, and those of its older format.
    forge: forge's runs.
    quasar: quasar's checkpoints, and the states of its nebulas.
    superpowers: the metadata of tracks.
"""
