"""The model's folder on the import path, as Triton's stub puts it there."""

from __future__ import annotations

import sys
from pathlib import Path

MODEL_FOLDER = Path(__file__).resolve().parents[2] / "workers/triton_models/llamacpp/1"
# At import, so that test modules can import the model's files; appended, as the stub does.
if str(MODEL_FOLDER) not in sys.path:
    sys.path.append(str(MODEL_FOLDER))
