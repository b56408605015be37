"""OrtValue, OrtDevice and IOBinding with the names of onnxruntime's Python package.

In and out: numpy arrays on the CPU. These classes share the memory of the arrays."""
import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from . import _values

Array = npt.NDArray[Any]


def _dtype_of(element_type: Any) -> Any:
    """From a numpy dtype or an ONNX number of an element type."""
    return (_values.numpy_dtype(element_type) if isinstance(element_type, int)
            else np.dtype(element_type))


def _only_cpu(device_type: str) -> None:
    if device_type.lower() != "cpu":
        raise ValueError(f"only CPU memory is supported, not '{device_type}'")


def _array_at(pointer: int, element_type: Any, shape: Sequence[int]) -> Array:
    """An array over memory of the caller."""
    dtype = _dtype_of(element_type)
    count = int(np.prod(shape, dtype=np.int64))
    memory = (ctypes.c_ubyte * (count * dtype.itemsize)).from_address(pointer)
    return np.frombuffer(memory, dtype=dtype, count=count).reshape(tuple(shape))


class OrtDevice:
    """A device. Only the CPU exists; any other device raises ValueError."""

    def __init__(self, device_type: str = "cpu", device_id: int = 0) -> None:
        _only_cpu(device_type)
        self._id = device_id

    @staticmethod
    def make(device_type: str, device_id: int = 0) -> "OrtDevice":
        """The device with that name."""
        return OrtDevice(device_type, device_id)

    def device_type(self) -> str:
        """'cpu'"""
        return "cpu"

    def device_id(self) -> int:
        """The number of the device."""
        return self._id


class OrtValue:
    """A tensor (array), a sequence (list) or None. It shares the memory of the array."""

    def __init__(self, value: Any) -> None:
        self._value = value

    @staticmethod
    def ortvalue_from_numpy(numpy_obj: Array, device_type: str = "cpu",
                            device_id: int = 0) -> "OrtValue":
        """An OrtValue that shares the memory of an array, or of a copy if the array is not
        C-contiguous or has bytes in another order: data_ptr() and shape() say all of the
        memory."""
        del device_id
        _only_cpu(device_type)
        array = np.asarray(numpy_obj, order="C")
        return OrtValue(array if array.dtype.isnative else
                        array.astype(array.dtype.newbyteorder("=")))

    @staticmethod
    def ortvalue_from_numpy_with_onnx_type(data: Array, onnx_element_type: int) -> "OrtValue":
        """An OrtValue over an array with the bits of a type that numpy lacks: bfloat16 (16) as
        uint16, a float8 as uint8. Raises ValueError if the elements have another size."""
        dtype, bits = _values.numpy_dtype(onnx_element_type), np.asarray(data, order="C")
        if dtype.itemsize != bits.itemsize:
            raise ValueError(f"elements of {bits.dtype} are given, those of {dtype} have "
                             f"{dtype.itemsize} bytes")
        return OrtValue(bits.view(dtype))

    @staticmethod
    def ortvalue_from_shape_and_type(shape: Sequence[int], element_type: Any = None,
                                     device_type: str = "cpu",
                                     device_id: int = 0) -> "OrtValue":
        """An OrtValue over new memory of that shape, which is not initialised."""
        del device_id
        _only_cpu(device_type)
        return OrtValue(np.empty(tuple(shape), _dtype_of(element_type or np.float32)))

    @staticmethod
    def from_dlpack(data: Any, is_bool_tensor: bool = False) -> "OrtValue":
        """An OrtValue that shares the memory of a tensor with __dlpack__, or of a copy if the
        tensor is not C-contiguous."""
        array = np.asarray(np.from_dlpack(data), order="C")
        return OrtValue(array.view(np.bool_) if is_bool_tensor else array)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return (np.asarray(self._value, dtype) if copy is None else
                np.array(self._value, dtype, copy=copy))

    def __dlpack__(self, **keywords: Any) -> Any:
        return self._value.__dlpack__(**keywords)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    def to_dlpack(self) -> Any:
        """The DLPack capsule of the array."""
        return self._value.__dlpack__()

    def numpy(self) -> Any:
        """The array itself, without a copy."""
        return self._value

    def shape(self) -> list[int]:
        """The dims of the array."""
        return list(self._value.shape)

    def element_type(self) -> int:
        """ONNX's number of the element type."""
        return _values.NUMBER_OF_NAME.get(self._value.dtype.name, _values.STRING)

    def data_type(self) -> str:
        """The type as onnxruntime writes it, such as 'tensor(float)'."""
        if isinstance(self._value, list):
            return f"seq({OrtValue(self._value[0]).data_type()})" if self._value else "seq()"
        return f"tensor({_values.ONNX_NAMES[self.element_type()]})"

    def data_ptr(self) -> int:
        """The address of the first element."""
        return int(self._value.ctypes.data)

    def tensor_size_in_bytes(self) -> int:
        """The size of all elements, in bytes."""
        return int(self._value.nbytes)

    def device_name(self) -> str:
        """'cpu'"""
        return "cpu"

    def is_tensor(self) -> bool:
        """True if the value is an array."""
        return isinstance(self._value, np.ndarray)

    def is_tensor_sequence(self) -> bool:
        """True if the value is a list of arrays."""
        return isinstance(self._value, list)

    def is_sparse_tensor(self) -> bool:
        """False: attnrun has no sparse tensors."""
        return False

    def has_value(self) -> bool:
        """False if the value is an empty optional."""
        return self._value is not None

    def update_inplace(self, np_arr: "Array | OrtValue") -> None:
        """Copies an array, or an OrtValue, into the memory. Raises ValueError if its shape or type
        is another one."""
        np_arr = np.asarray(np_arr)
        if np_arr.shape != self._value.shape or np_arr.dtype != self._value.dtype:
            raise ValueError(f"{np_arr.dtype}{list(np_arr.shape)} is given, the value is "
                             f"{self._value.dtype}{list(self._value.shape)}")
        self._value[...] = np_arr


class IOBinding:
    """The inputs and outputs of run_with_iobinding(), bound by name. Inputs are read in place, and
    an output with memory of the caller is written there."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self._inputs: dict[str, Any] = {}
        self._outputs: dict[str, Any] = {}
        self._results: list[OrtValue] = []

    def bind_cpu_input(self, name: str, arr_on_cpu: Any) -> None:
        """Binds an array, which the run reads in place."""
        self._inputs[name] = arr_on_cpu

    def bind_input(self, name: str, device_type: str, device_id: int, element_type: Any,
                   shape: Sequence[int], buffer_ptr: int) -> None:
        """Binds memory at an address. The caller keeps it alive until the run has ended."""
        del device_id
        _only_cpu(device_type)
        self._inputs[name] = _array_at(buffer_ptr, element_type, shape)

    def bind_ortvalue_input(self, name: str, ortvalue: OrtValue) -> None:
        """Binds the content of an OrtValue."""
        self._inputs[name] = ortvalue._value

    def bind_output(self, name: str, device_type: str = "cpu", device_id: int = 0,
                    element_type: Any = None, shape: Sequence[int] | None = None,
                    buffer_ptr: int | None = None) -> None:
        """Binds an output to memory at an address. Without an address each run makes an array."""
        del device_id
        _only_cpu(device_type)
        self._outputs[name] = (None if buffer_ptr is None else
                               _array_at(buffer_ptr, element_type or np.float32, shape or ()))

    def bind_ortvalue_output(self, name: str, ortvalue: OrtValue) -> None:
        """Binds an output to the memory of an OrtValue."""
        self._outputs[name] = ortvalue._value

    def get_outputs(self) -> list[OrtValue]:
        """The results of the last run, in the order of binding."""
        return self._results

    get_outputs_as_ortvaluevector = get_outputs

    def copy_outputs_to_cpu(self) -> list[Any]:
        """Copies of the results of the last run, as arrays."""
        return [np.array(value._value) if isinstance(value._value, np.ndarray)
                else value._value for value in self._results]

    def clear_binding_inputs(self) -> None:
        """Forgets all inputs."""
        self._inputs.clear()

    def clear_binding_outputs(self) -> None:
        """Forgets all outputs."""
        self._outputs.clear()

    def synchronize_inputs(self) -> None:
        """Without effect: a run is complete when it returns."""

    synchronize_outputs = synchronize_inputs
