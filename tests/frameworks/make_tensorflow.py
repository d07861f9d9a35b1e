"""TensorFlow: `tf.train.CheckpointManager`, resumed by `restore_or_initialize`; and its Keras.

`absolute` shows that a restore into another directory resumes although the text `checkpoint` named
the old one by its full path.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import script

CASES = {
    "manager": {"layout": "tf-checkpoint"},
    "absolute": {"layout": "tf-checkpoint"},
}


class _State:
    def __init__(self) -> None:
        import keras
        import tensorflow as tf

        keras.utils.set_random_seed(1)
        self.model = keras.Sequential([keras.layers.Input((1024,)), keras.layers.Dense(2048)])
        self.optimizer = keras.optimizers.Adam()
        self.optimizer.build(self.model.trainable_variables)
        self.step = tf.Variable(0, dtype=tf.int64)
        self.checkpoint = tf.train.Checkpoint(
            step=self.step, model=self.model, optimizer=self.optimizer
        )

    def train(self) -> None:
        import tensorflow as tf

        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(self.model(tf.ones((4, 1024)))))
        variables = self.model.trainable_variables
        self.optimizer.apply(tape.gradient(loss, variables), variables)
        self.step.assign_add(1)

    def tensors(self) -> dict[str, Any]:
        found = {f"m{at}": v.numpy() for at, v in enumerate(self.model.variables)}
        return found | {f"o{at}": v.numpy() for at, v in enumerate(self.optimizer.variables)}


def _manager(state: _State, directory: Path, *, absolute: bool) -> Any:
    import tensorflow as tf

    place = directory.resolve() if absolute else directory
    return tf.train.CheckpointManager(state.checkpoint, str(place), max_to_keep=2)


def _case(*, absolute: bool) -> script.Case:
    def train(directory: Path, saves: int | None) -> None:
        state = _State()
        manager = _manager(state, directory, absolute=absolute)
        while saves is None or int(state.step) < 2 * saves:
            state.train()
            if int(state.step) % 2 == 0:
                script.saving(int(state.step), state.tensors())
                manager.save()
                if absolute:
                    _by_full_path(directory)
                script.saved(int(state.step))

    def resume(directory: Path) -> None:
        state = _State()
        found = _manager(state, directory, absolute=absolute).restore_or_initialize()
        script.resumed(int(state.step) if found else None, state.tensors())
        os._exit(0)

    return script.Case(train, resume)


def _by_full_path(directory: Path) -> None:
    """As trainers that give `latest_filename` or another directory write into `checkpoint`."""
    place = directory / "checkpoint"
    text = place.read_text().replace('"ckpt-', f'"{directory.resolve()}/ckpt-')
    fresh = directory / "checkpoint.fresh"
    fresh.write_text(text)
    fresh.rename(place)


if __name__ == "__main__":
    script.main({"manager": _case(absolute=False), "absolute": _case(absolute=True)})
