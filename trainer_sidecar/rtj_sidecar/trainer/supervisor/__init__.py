"""PID 1 of the trainer's container: starts the trainer when told, and tells how it ended.

Standard library only, Python >= 3.8: it is copied into the pod and runs on whatever Python the
trainer's image has. It must never start a trainer twice for one attempt, never exit while the
pod's saves are not safe (unless nobody is left to save them), never signal a process outside its
own container, and never change what the trainer prints.

It talks through files in `../run` (names in rtj_api.contract, forms in rtj_api.wire), each written
whole and renamed. Reads go.json, stop.json, release.json, supervise.json, the mtime of
sidecar.beat; writes supervisor.json, supervisor.journal, trainer.log. Nothing here may be imported
by the sidecar, and nothing here imports anything of the project.
"""
