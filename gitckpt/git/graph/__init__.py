"""What leads to what: commits to those before them, and these to their trees and files; asked about many of them at once.

Doors:
    reachability: which commits lead to which.
    connectivity: what is missing beneath.
    kinds: of which kind they are, and whether they are there.
    partial: what a partial clone has yet to fetch.
"""
