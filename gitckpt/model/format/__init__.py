"""What is written, to whoever writes it and to whoever reads it: the keys of a document and what it may cost, the lines of a note.

Doors:
    document: the keys of a checkpoint → its document.
    budget: what a document may cost.
    note: the checkpoints of a commit ⇄ the lines of its note.
"""
