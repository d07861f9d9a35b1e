"""Checkpoints that this project did not write, made into proved saves of a run.

`places`: a directory or a bucket path, looked at without bringing what is not wanted. `playbook`:
a manifest.json that another's trainer keeps. `choosing`: which save of a place is its newest.
`importing`: the flow. Must never change a place, and never take what it cannot prove or order.
"""
