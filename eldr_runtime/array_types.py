"""Array types shared by the numeric modules; shapes are given where they are used."""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Counts: TypeAlias = NDArray[np.uint32]
Floats32: TypeAlias = NDArray[np.float32]
Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]
ExpertIds: TypeAlias = NDArray[np.uint8] | NDArray[np.uint16]
