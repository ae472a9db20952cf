"""Commands about runs, one file each: pipelines, loops, reviews, steps, and work by hand; `resume` opens the files of any checkpoint, too.

Doors: all; `gitckpt.cli.parser.commands` names each.
"""
