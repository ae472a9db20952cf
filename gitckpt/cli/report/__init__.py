"""Write a report of checkpoints, runs and sessions as one HTML page.

Public modules:
    page: renders a report with Jinja2.
"""
