"""Orbax on JAX, and Keras on its JAX backend: managers, files, and BackupAndRestore."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import script

CASES = {
    # Of `flags` the existence counts, for the library as for the verdict, and not the words in it.
    "orbax": {"layout": "orbax", "flags": ["commit_success.txt"]},
    "orbax-async-items": {"layout": "orbax", "flags": ["commit_success.txt"]},
    "keras-weights": {"layout": "keras"},
    "keras-archive": {"layout": "keras"},
    "keras-backup": {"layout": "keras", "in_place": True},
    "keras-double-backup": {"layout": "keras", "in_place": True},
}


def _orbax_state(step: int) -> dict[str, Any]:
    import jax
    import jax.numpy as jnp

    key = jax.random.key(step)
    weights = jax.random.normal(key, (1024, 1024))
    moments = {"mu": weights * 2, "nu": weights * 3, "count": jnp.array(step)}
    return {"params": {"w": weights}, "opt_state": moments, "step": step}


def _orbax_tensors(state: dict[str, Any]) -> dict[str, Any]:
    return {"w": state["params"]["w"], **state["opt_state"]}


def _orbax(*, items: bool) -> script.Case:
    def manager(directory: Path) -> Any:
        import orbax.checkpoint as ocp

        options = ocp.CheckpointManagerOptions(max_to_keep=2, enable_async_checkpointing=items)
        return ocp.CheckpointManager(directory.resolve(), options=options)

    def train(directory: Path, saves: int | None) -> None:
        import orbax.checkpoint as ocp

        keeper, step = manager(directory), 0
        while saves is None or step < 10 * saves:
            step += 10
            state = _orbax_state(step)
            script.saving(step, _orbax_tensors(state))
            args: Any = ocp.args.StandardSave(state)
            if items:
                extra = ocp.args.JsonSave({"epoch": step // 20, "loss": 1 / step})
                args = ocp.args.Composite(state=args, extra=extra)
            keeper.save(step, args=args)
            keeper.wait_until_finished()
            script.saved(step)

    def resume(directory: Path) -> None:
        import orbax.checkpoint as ocp

        keeper = manager(directory)
        step = keeper.latest_step()
        if step is None:
            script.resumed(None, {})
        else:
            args: Any = ocp.args.StandardRestore(_orbax_state(0))
            args = ocp.args.Composite(state=args) if items else args
            found = keeper.restore(step, args=args)
            state = found["state"] if items else found
            script.resumed(int(state["step"]), _orbax_tensors(state))
        os._exit(0)

    return script.Case(train, resume)


def _keras_model() -> Any:
    import keras

    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.layers.Input((1024,)), keras.layers.Dense(1024)])
    model.compile(optimizer="adam", loss="mse")
    model.optimizer.build(model.trainable_variables)
    return model


def _keras_tensors(model: Any) -> dict[str, Any]:
    import numpy

    variables = [*model.variables, *model.optimizer.variables]
    return {str(at): numpy.asarray(variable.value) for at, variable in enumerate(variables)}


def _keras_step(model: Any) -> int:
    return int(model.optimizer.iterations.value)


def _fit(model: Any, *, epochs: int, callbacks: list[Any]) -> None:
    import numpy

    x, y = numpy.ones((16, 1024)), numpy.ones((16, 1024))
    model.fit(x, y, batch_size=8, epochs=epochs, verbose=0, callbacks=callbacks)


def _keras_files(suffix: str) -> script.Case:
    def train(directory: Path, saves: int | None) -> None:
        import keras

        directory.mkdir(parents=True, exist_ok=True)

        class Saver(keras.callbacks.ModelCheckpoint):
            def _save_model(self, epoch: int, batch: Any, logs: Any) -> None:
                script.saving(_keras_step(self.model), _keras_tensors(self.model))
                super()._save_model(epoch, batch, logs)
                script.saved(_keras_step(self.model))

        name = f"{directory}/epoch_{{epoch:04d}}{suffix}"
        saver = Saver(name, save_weights_only=suffix == ".weights.h5")
        _fit(_keras_model(), epochs=saves or 5000, callbacks=[saver])

    def resume(directory: Path) -> None:
        """As a script would: the newest name."""
        import keras

        newest = max(directory.glob(f"epoch_*{suffix}"))
        model = _keras_model()
        if suffix == ".keras":
            model = keras.models.load_model(newest)
        else:
            model.load_weights(newest)
        script.resumed(_keras_step(model), _keras_tensors(model))
        os._exit(0)

    return script.Case(train, resume)


def _keras_backup(*, double: bool) -> script.Case:
    def backup(directory: Path) -> Any:
        import keras

        class Backup(keras.callbacks.BackupAndRestore):
            def _save_model(self) -> None:
                script.saving(_keras_step(self.model), _keras_tensors(self.model))
                super()._save_model()
                script.saved(_keras_step(self.model))

        return Backup(str(directory), double_checkpoint=double, delete_checkpoint=False)

    def train(directory: Path, saves: int | None) -> None:
        _fit(_keras_model(), epochs=saves or 5000, callbacks=[backup(directory)])

    def resume(directory: Path) -> None:
        import keras

        class Told(keras.callbacks.Callback):
            def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
                step = _keras_step(self.model)
                # Two batches an epoch: the count beside the weights must be theirs.
                script.resumed(step if step == 2 * epoch else -1, _keras_tensors(self.model))
                os._exit(0)

        _fit(_keras_model(), epochs=5000, callbacks=[backup(directory), Told()])

    return script.Case(train, resume)


if __name__ == "__main__":
    os.environ["KERAS_BACKEND"] = "jax"
    os.environ["JAX_PLATFORMS"] = "cpu"
    script.main(
        {
            "orbax": _orbax(items=False),
            "orbax-async-items": _orbax(items=True),
            "keras-weights": _keras_files(".weights.h5"),
            "keras-archive": _keras_files(".keras"),
            "keras-backup": _keras_backup(double=False),
            "keras-double-backup": _keras_backup(double=True),
        }
    )
