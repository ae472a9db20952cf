"""Let only one process at a time drive a run, by leases.

Public modules:
    leases: acquires, renews and checks leases.
"""
