"""A stand-in for NVIDIA's driver library, for machines without a GPU, and with one that has another fault."""

from __future__ import annotations

from dataclasses import dataclass, field

H200 = {20: 0, 75: 9, 76: 0, 97: 232_448, 16: 132, 38: 50 << 20}


@dataclass
class Driver:
    """As ctypes gives NVIDIA's library: functions that return a CUresult and write to what they are given."""

    init: int = 0
    count: int = 1
    version: int = 13000
    name: bytes = b"NVIDIA H200"
    bus: bytes = b"0000:65:00.0"
    attributes: dict[int, int] = field(default_factory=lambda: dict(H200))

    def cuInit(self, flags):
        return self.init

    def cuDeviceGetCount(self, count):
        count._obj.value = self.count
        return 0

    def cuDriverGetVersion(self, version):
        version._obj.value = self.version
        return 0

    def cuDeviceGetName(self, name, size, device):
        name.value = self.name
        return 0

    def cuDeviceGetPCIBusId(self, bus, size, device):
        bus.value = self.bus
        return 0

    def cuDeviceGetAttribute(self, value, number, device):
        assert device == 0
        value._obj.value = self.attributes.get(number, 0)
        return 0 if number in self.attributes else 1

    def cuDeviceTotalMem_v2(self, total, device):
        total._obj.value = 141 << 30
        return 0
