"""The type of a column."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Column = NDArray[np.int64]
