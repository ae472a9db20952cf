"""The formats of other tools: parse their files, and write checkpoints as such.

Doors:
    detection: detects the format of a file; the names of all formats.
    content: `Record`, the content of one file.
    rlm_act: rlm-act's checkpoints, and those of its older format.
    forge: forge's runs.
    quasar: quasar's checkpoints, and the states of its nebulas.
    superpowers: the metadata of tracks.
"""
