"""local-attention's class without the rest of that package, which asks for more packages."""
import sys

from . import _parts as parts

parts.without_init("local_attention")
from local_attention.local_attention import LocalAttention  # noqa: E402

sys.modules["local_attention"].LocalAttention = LocalAttention
