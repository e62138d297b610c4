"""Pushes the checkpoints of a transformers Trainer to a server."""
from __future__ import annotations

import logging
import os
from typing import Any, Optional, Sequence, Union

from transformers import TrainerCallback

from ..address import Urls
from ..errors import TensordError
from ..publishing.place import place_of
from ..publishing.push import PushResult, push

logger = logging.getLogger("tensord")


class PushCallback(TrainerCallback):  # type: ignore[misc]  # transformers has no types where it is not installed
    """A callback for Trainer: each checkpoint becomes a commit when it has been saved.

        trainer = Trainer(..., callbacks=[PushCallback("tensord://host:8080/org/name")])

    `url`: of a model, which then has exactly the files of the newest checkpoint; or of a folder in a model, whose other
    files stay. `revision`: the branch or tag to move, "main" by default, in which "{step}" stands for the number of the
    step: "step-{step}" keeps all checkpoints. `include`, `exclude`: globs over the files of a checkpoint, such as
    "optimizer.pt". `options`: those of `tensord.Options`, by name; the token needs the right to write.

    Training waits for each push. After a failure the logger "tensord" warns, and training continues. If the last push
    has failed, it is tried again at the end of the training, and a further failure is raised. `result` is that of the
    last push (None: none has succeeded). Only the first process of a job pushes.
    """

    def __init__(self, url: Urls, *, revision: Optional[str] = None, include: Union[str, Sequence[str]] = (),
                 exclude: Union[str, Sequence[str]] = (), **options: Any):
        self.url, self.revision, self.include, self.exclude = url, revision, include, exclude
        self.options = options
        self.result: Optional[PushResult] = None
        self._keep = bool(place_of(url).folder)
        self._failed: Optional[int] = None  # the step whose push has failed

    def _push(self, args: Any, step: int) -> None:
        folder = os.path.join(args.output_dir, f"checkpoint-{step}")
        revision = self.revision.replace("{step}", str(step)) if self.revision else None
        self.result = push(folder, self.url, revision=revision, message=f"step {step}", keep=self._keep,
                           include=self.include, exclude=self.exclude, **self.options)

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Pushes the checkpoint that was just saved."""
        if not state.is_world_process_zero:
            return
        self._failed = None
        try:
            self._push(args, state.global_step)
        except (TensordError, OSError) as error:
            logger.warning("the checkpoint of step %d was not pushed: %s", state.global_step, error)
            self._failed = state.global_step

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Tries the last push again if it has failed. Raises its errors."""
        if self._failed is not None:
            self._push(args, self._failed)
            self._failed = None
