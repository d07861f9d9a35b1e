"""`helm test`: one small job of its own, whose trainer is killed once, watched until it is done.

It shows an installation to be whole (the CRD, the operator, its rights, both images, a node that
runs the pods, the store if one is given) by what the project is for. It may do to the cluster only
what `templates/test.yaml` of the chart grants, and must never touch another job.
"""
