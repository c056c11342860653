# SPDX-License-Identifier: Apache-2.0
"""The code that ptxas made of the kernels: registers, stack and the width of memory accesses, without a GPU.

    device_code_test.py [--print] LIBRARY...    the libraries of the layers' CUDA halves, built with --no-compress

Reads the cubins in the libraries: ELF files of machine EM_CUDA, whose .nv.info sections have what `cuobjdump -res-usage` prints, and
whose instructions have been 128 bits since Volta. No kernel may use local memory (a stack or spilled registers) but those in `SPILLS`.
Those in `JUDGED`, which move a step's bytes, have to fit a multiprocessor of an H100 so many times, and to move 16 bytes an instruction.
"""

import re
import struct
import sys
from dataclasses import dataclass, field
from pathlib import Path

EM_CUDA = 190
REGISTERS, THREADS, BLOCKS = 65536, 2048, 32  # of a multiprocessor, compute capability 9.0
FRAME_SIZE, REGISTER_COUNT = 0x11, 0x2F  # attributes in .nv.info: (symbol, value)
# The lower 12 bits of an instruction, whether its address has a descriptor or not; bits 73 to 75 are the size, 6: 16 bytes.
GLOBAL_LOAD, GLOBAL_STORE, LOCAL = {0x381, 0x981}, {0x386, 0x986}, {0x983, 0x387, 0x987}
SIXTEEN_BYTES = 6

BF16 = "IN3c108BFloat16E"
# Part of a kernel's mangled name: threads a block at Llama 1B's shapes, blocks on a multiprocessor, loads and stores of 16 bytes.
JUDGED = {
    rf"14forward_kernel{BF16}Li8ELb0E": (128, 12, 2, 1),
    rf"15backward_kernel{BF16}Li8ELi1ELi256ELb0E": (256, 4, 3, 1),
    rf"15backward_kernel{BF16}Li8ELi1ELi384ELb0E": (384, 3, 3, 1),
    rf"15backward_kernel{BF16}Li8ELi2ELi512ELb0E": (384, 1, 6, 2),
    rf"11head_kernel{BF16}Li16E": (256, 6, 2, 1),
    rf"20head_backward_kernel{BF16}Li16E": (256, 4, 3, 1),
    rf"20cross_entropy_kernel{BF16}Li8E": (512, 2, 4, 2),
    rf"27cross_entropy_shared_kernel{BF16}Li1024E": (1024, 1, 2, 2),
    rf"27cross_entropy_shared_kernel{BF16}Li512E": (512, 2, 1, 2),
    rf"27cross_entropy_shared_kernel{BF16}Li256E": (256, 4, 1, 2),
    rf"17statistics_kernel{BF16}Li8E": (512, 2, 2, 0),
    rf"20gradient_part_kernel{BF16}Li8E": (512, 2, 2, 2),
    r"11rows_kernelILi8E.*9GatedUnitI.*4Silu": (256, 8, 2, 1),
    r"11rows_kernelILi8E.*17GatedUnitBackwardI.*4Silu": (256, 6, 3, 3),
    rf"11rows_kernelILi8E.*6Rotate{BF16}Lb0E": (256, 8, 6, 2),
    rf"11rows_kernelILi8E.*6Rotate{BF16}Lb1E": (256, 6, 6, 2),
    rf"11rows_kernelILi8E.*14PlaceGradients{BF16}Lb0E": (256, 6, 7, 3),
    rf"11rows_kernelILi8E.*14PlaceGradients{BF16}Lb1E": (256, 6, 7, 3),
    rf"11rows_kernelILi8E.*6Gather{BF16}": (256, 8, 1, 1),
    rf"14scatter_kernel{BF16}Li8E": (256, 4, 3, 2),
    rf"18gather_rows_kernel{BF16}Li8E": (256, 8, 2, 2),
    rf"11rows_kernelILi8E.*9ScaleRows{BF16}": (256, 8, 1, 1),
    rf"11rows_kernelILi8E.*7SumRows{BF16}": (256, 8, 2, 1),
    rf"11rows_kernelILi8E.*12MoveSegments{BF16}": (256, 8, 1, 1),
    rf"23weight_gradients_kernel{BF16}Li8E": (256, 8, 2, 0),
    r"12range_kernelILi8E.*4CastIfN3c108BFloat16E": (256, 8, 2, 1),
    r"12range_kernelILi4E.*6UpdateILb0Ef": (256, 5, 4, 3),
    r"12range_kernelILi4E.*6UpdateILb1Ef": (256, 5, 3, 2),
    r"12range_kernelILi4E.*6UpdateILb0EN3c108BFloat16E": (256, 4, 2, 1),  # moments: 8 bytes an instruction
    r"12range_kernelILi4E.*6UpdateILb1EN3c108BFloat16E": (256, 4, 1, 0),
    r"14squares_kernelILi4E": (256, 6, 1, 0),
    r"11rows_kernelILi8E.*9PackTermsE": (256, 6, 2, 1),
    r"12range_kernelILi8E.*8SumTermsIf": (256, 5, 3, 2),
    rf"12range_kernelILi8E.*8SumTerms{BF16}": (256, 5, 1, 1),
    r"12range_kernelILi8E.*9PackWholeE": (256, 6, 2, 1),
    r"12range_kernelILi8E.*5WidenE": (256, 8, 1, 2),
}
# Rows wider than 8192 whose sums do not fit the registers of 512 threads, and unaligned ones.
SPILLS = re.compile(r"15backward_kernelI(N3c108BFloat16ELi(8ELi4E|1ELi(16|32)E)|fLi(4ELi8E|1ELi(16|32)E))Li512ELb.E")


@dataclass
class Kernel:
    name: str
    registers: int = 0
    stack: int = 0
    local: int = 0
    loads: dict = field(default_factory=dict)  # how many, by the size in an instruction
    stores: dict = field(default_factory=dict)

    def blocks(self, threads):
        """How many blocks fit a multiprocessor: registers are given to warps by 256."""
        of_warp = -(-self.registers * 32 // 256) * 256
        return min(REGISTERS // (of_warp * threads // 32), THREADS // threads, BLOCKS)


def cubins(data):
    """Every whole ELF file of machine EM_CUDA in `data`."""
    for found in re.finditer(b"\x7fELF\x02", data):
        header = data[found.start() : found.start() + 64]
        if len(header) == 64 and struct.unpack_from("<H", header, 18)[0] == EM_CUDA:
            yield data[found.start() :]


def sections(elf):
    """(name, bytes) of every section, and the symbols' names by number."""
    offset, count, names = struct.unpack_from("<Q", elf, 40)[0], *struct.unpack_from("<HH", elf, 60)
    headers = [struct.unpack_from("<IIQQQQIIQQ", elf, offset + 64 * i) for i in range(count)]
    body = [elf[h[4] : h[4] + h[5]] if h[1] != 8 else b"" for h in headers]  # 8: SHT_NOBITS

    def text(table, at):
        return table[at : table.index(b"\0", at)].decode()

    named = [(text(body[names], h[0]), b) for h, b in zip(headers, body)]
    symbols = []
    for h, b in zip(headers, body):
        if h[1] == 2:  # SHT_SYMTAB
            symbols = [text(body[h[6]], struct.unpack_from("<I", b, 24 * i)[0]) for i in range(len(b) // 24)]
    return named, symbols


def attributes(info):
    """(attribute, symbol, value) of a .nv.info section."""
    at = 0
    while at + 4 <= len(info):
        form, attribute, size = struct.unpack_from("<BBH", info, at)
        at += 4
        if form != 4:  # the value is in the header
            continue
        if size == 8:
            yield (attribute, *struct.unpack_from("<II", info, at))
        at += size


def kernels_of(elf):
    named, symbols = sections(elf)
    kernels = {name.removeprefix(".text."): Kernel(name.removeprefix(".text.")) for name, _ in named if name.startswith(".text.")}
    for name, body in named:
        if name == ".nv.info":
            for attribute, symbol, value in attributes(body):
                kernel = kernels.get(symbols[symbol])
                if kernel and attribute == REGISTER_COUNT:
                    kernel.registers = value
                if kernel and attribute == FRAME_SIZE:
                    kernel.stack = value
        if not name.startswith(".text."):
            continue
        kernel = kernels[name.removeprefix(".text.")]
        for low, high in struct.iter_unpack("<QQ", body):
            opcode, size = low & 0xFFF, high >> 9 & 7
            if opcode in GLOBAL_LOAD:
                kernel.loads[size] = kernel.loads.get(size, 0) + 1
            if opcode in GLOBAL_STORE:
                kernel.stores[size] = kernel.stores.get(size, 0) + 1
            kernel.local += opcode in LOCAL
    return list(kernels.values())


def faults_of(kernel):
    if (kernel.stack or kernel.local) and not SPILLS.search(kernel.name):
        yield f"uses local memory: a stack of {kernel.stack} bytes, {kernel.local} accesses"
    for pattern, (threads, blocks, loads, stores) in JUDGED.items():
        if not re.search(pattern, kernel.name):
            continue
        if kernel.blocks(threads) < blocks:
            yield f"{kernel.registers} registers: {kernel.blocks(threads)} blocks of {threads} threads fit, not {blocks}"
        for what, found, least in (("loads", kernel.loads, loads), ("stores", kernel.stores, stores)):
            if found.get(SIXTEEN_BYTES, 0) < least:
                yield f"{found.get(SIXTEEN_BYTES, 0)} {what} of 16 bytes, not {least}; by size: {found}"


def main(arguments):
    shows = arguments[0] == "--print"
    kernels = []
    for path in arguments[shows:]:
        found = [k for elf in cubins(Path(path).read_bytes()) for k in kernels_of(elf)]
        if not found:
            sys.exit(f"{path}: no device code; is it built with --no-compress?")
        kernels += found
    faults = [f"{k.name}: {fault}" for k in kernels for fault in faults_of(k)]
    faults += [f"no kernel is named {pattern}" for pattern in JUDGED if not any(re.search(pattern, k.name) for k in kernels)]
    if any(k.registers == 0 for k in kernels):
        faults.append("a kernel without a number of registers: this reader does not know the toolkit's cubins")
    for k in kernels if shows else []:
        print(f"{k.registers:4} registers {k.stack:4} stack  loads {k.loads} stores {k.stores}  {k.name}")
    print("\n".join(faults) or f"{len(kernels)} kernels: no stack, and 16 bytes at a time where it counts")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
