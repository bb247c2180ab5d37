"""Reads a GGUF file: metadata, and tensors as float32. Only the standard library is used.

The format is the one that https://github.com/ggml-org/ggml/blob/master/docs/gguf.md describes: a header, metadata
as key, type and value, a table of tensors, and their data, all little-endian. A quantised tensor is a row of blocks
of 32 or 256 values. Every type here comes down to

    value = scale * code + offset        for each group of 16 or 32 codes

with scales and offsets that are themselves products of a half-precision number and a few bits. The arithmetic is in
double precision, where these products and sums are exact, so each float32 is the value rounded once.

Blocks are taken apart column by column (byte k of every block is data[k::block_bytes]), because slices, translate()
and operations on very long integers run at C's speed and loops over bytes do not.
SPDX-License-Identifier: Apache-2.0
"""
import array
import itertools
import math
import mmap
import shutil
import struct
import sys
import tempfile
import zipfile


class GgufError(Exception):
    """What is wrong with a file, said to the user."""


# ---- bits of bytes, for whole columns ----

LOW = bytes(i & 15 for i in range(256))
HIGH = bytes(i >> 4 for i in range(256))
PAIR = [bytes((i >> shift) & 3 for i in range(256)) for shift in (0, 2, 4, 6)]  # two bits
BIT = [bytes((i >> bit) & 1 for i in range(256)) for bit in range(8)]
LOW6 = bytes(i & 63 for i in range(256))
TIMES = {4: bytes(i * 4 & 255 for i in range(256)), 16: bytes(i * 16 & 255 for i in range(256))}


def both(low, high):
    """low | high, byte by byte."""
    joined = int.from_bytes(low, "little") | int.from_bytes(high, "little")
    return joined.to_bytes(len(low), "little")


def halves(data, at, stride):
    """The half-precision numbers at byte `at` of every block."""
    raw = bytearray(2 * (len(data) // stride))
    raw[0::2] = data[at::stride]
    raw[1::2] = data[at + 1::stride]
    return struct.unpack("<%de" % (len(raw) // 2), raw)


class Groups:
    """Codes of many blocks, and a scale and an offset for each group of them."""

    def __init__(self, blocks, block_values, group_values):
        self.block_values = block_values
        self.group_values = group_values
        self.per_block = block_values // group_values
        self.codes = bytearray(blocks * block_values)
        self.scales = [0.0] * (blocks * self.per_block)
        self.offsets = [0.0] * (blocks * self.per_block)

    def put(self, place, column):
        """The code at `place` of every block."""
        self.codes[place::self.block_values] = column

    def scale(self, group, scales, offsets):
        self.scales[group::self.per_block] = scales
        self.offsets[group::self.per_block] = offsets

    def values(self, signed=False):
        codes = memoryview(self.codes).cast("b") if signed else self.codes
        size = self.group_values
        out = array.array("f")
        starts = range(0, len(codes), size)
        for at, scale, offset in zip(starts, self.scales, self.offsets):
            out.extend([scale * code + offset for code in codes[at:at + size]])
        return out


# ---- one function a type: data of whole blocks to float32 ----


def q4_0(data):  # half d; 16 bytes: values 0 to 15 in the low nibbles, 16 to 31 in the high ones; minus 8
    groups = Groups(len(data) // 18, 32, 32)
    for i in range(16):
        column = data[2 + i::18]
        groups.put(i, column.translate(LOW))
        groups.put(16 + i, column.translate(HIGH))
    d = halves(data, 0, 18)
    groups.scale(0, d, [-8 * x for x in d])
    return groups.values()


def q4_1(data):  # half d, half m; nibbles as in q4_0; plus m
    groups = Groups(len(data) // 20, 32, 32)
    for i in range(16):
        column = data[4 + i::20]
        groups.put(i, column.translate(LOW))
        groups.put(16 + i, column.translate(HIGH))
    groups.scale(0, halves(data, 0, 20), halves(data, 2, 20))
    return groups.values()


def five_bits(data, stride, fifth, nibbles):
    """Codes of q5_0 and q5_1: bit i of the 32 bits at `fifth` is the fifth bit of value i."""
    groups = Groups(len(data) // stride, 32, 32)
    for i in range(16):
        column = data[nibbles + i::stride]
        for half, table in ((0, LOW), (16, HIGH)):
            place = half + i
            top = data[fifth + place // 8::stride].translate(BIT[place % 8]).translate(TIMES[16])
            groups.put(place, both(column.translate(table), top))
    return groups


def q5_0(data):  # half d, 32 fifth bits, nibbles; minus 16
    groups = five_bits(data, 22, 2, 6)
    d = halves(data, 0, 22)
    groups.scale(0, d, [-16 * x for x in d])
    return groups.values()


def q5_1(data):  # half d, half m, 32 fifth bits, nibbles; plus m
    groups = five_bits(data, 24, 4, 8)
    groups.scale(0, halves(data, 0, 24), halves(data, 2, 24))
    return groups.values()


def q8_0(data):  # half d; 32 signed bytes
    groups = Groups(len(data) // 34, 32, 32)
    for i in range(32):
        groups.put(i, data[2 + i::34])
    groups.scale(0, halves(data, 0, 34), itertools.repeat(0.0, len(data) // 34))
    return groups.values(signed=True)


def products(halves_of_blocks, column):
    return [half * number for half, number in zip(halves_of_blocks, column)]


def q2_k(data):  # 16 bytes: scale and minimum of 16 values each, 4 bits; 64 bytes: 2 bits a value; half d, half dmin
    groups = Groups(len(data) // 84, 256, 16)
    d, dmin = halves(data, 80, 84), halves(data, 82, 84)
    for group in range(16):
        column = data[group::84]
        minima = products(dmin, column.translate(HIGH))
        groups.scale(group, products(d, column.translate(LOW)), [-x for x in minima])
    for half in range(2):
        for i in range(32):
            column = data[16 + 32 * half + i::84]
            for quarter in range(4):
                groups.put(128 * half + 32 * quarter + i, column.translate(PAIR[quarter]))
    return groups.values()


def q3_k(data):  # 32 bytes of third bits, 64 bytes of low pairs, 12 bytes: 16 scales of 6 bits, minus 32; half d
    groups = Groups(len(data) // 110, 256, 16)
    d = halves(data, 108, 110)
    for group in range(16):
        low = data[96 + group % 8::110].translate(LOW if group < 8 else HIGH)
        top = data[104 + group % 4::110].translate(PAIR[group // 4]).translate(TIMES[16])
        scales = [half * (number - 32) for half, number in zip(d, both(low, top))]
        groups.scale(group, scales, [-4 * x for x in scales])
    for half in range(2):
        for i in range(32):
            column, third = data[32 + 32 * half + i::110], data[i::110]
            for quarter in range(4):
                top = third.translate(BIT[4 * half + quarter]).translate(TIMES[4])
                groups.put(128 * half + 32 * quarter + i, both(column.translate(PAIR[quarter]), top))
    return groups.values()


def scales_of_8(groups, data, stride):
    """Scales and minima of q4_k and q5_k: half d, half dmin, then eight pairs of 6 bits in 12 bytes. The first four
    pairs are bytes 0 to 3 and 4 to 7; the others are nibbles of bytes 8 to 11 with the top bits of those."""
    d, dmin = halves(data, 0, stride), halves(data, 2, stride)
    for group in range(8):
        first, second = data[4 + group % 4::stride], data[8 + group % 4::stride]
        if group < 4:
            scale, minimum = first.translate(LOW6), second.translate(LOW6)
        else:
            third = data[12 + group % 4::stride]
            scale = both(third.translate(LOW), first.translate(PAIR[3]).translate(TIMES[16]))
            minimum = both(third.translate(HIGH), second.translate(PAIR[3]).translate(TIMES[16]))
        groups.scale(group, products(d, scale), [-x for x in products(dmin, minimum)])


def q4_k(data):  # scales_of_8; 128 bytes: 64 values in 32 bytes, the low nibbles first
    groups = Groups(len(data) // 144, 256, 32)
    scales_of_8(groups, data, 144)
    for quarter in range(4):
        for i in range(32):
            column = data[16 + 32 * quarter + i::144]
            groups.put(64 * quarter + i, column.translate(LOW))
            groups.put(64 * quarter + 32 + i, column.translate(HIGH))
    return groups.values()


def q5_k(data):  # scales_of_8; 32 bytes of fifth bits, a bit for each 32 values; nibbles as in q4_k
    groups = Groups(len(data) // 176, 256, 32)
    scales_of_8(groups, data, 176)
    for quarter in range(4):
        for i in range(32):
            column, fifth = data[48 + 32 * quarter + i::176], data[16 + i::176]
            for half, table in ((0, LOW), (1, HIGH)):
                top = fifth.translate(BIT[2 * quarter + half]).translate(TIMES[16])
                groups.put(64 * quarter + 32 * half + i, both(column.translate(table), top))
    return groups.values()


def q6_k(data):  # 128 bytes of nibbles, 64 bytes of top pairs, 16 signed scales, half d; minus 32
    groups = Groups(len(data) // 210, 256, 16)
    d = halves(data, 208, 210)
    for group in range(16):
        scales = products(d, memoryview(data[192 + group::210]).cast("b"))
        groups.scale(group, scales, [-32 * x for x in scales])
    for half in range(2):
        for i in range(32):
            top = data[128 + 32 * half + i::210]
            for quarter in range(4):  # nibbles: low of the first 32 bytes, of the second, then the high ones
                column = data[64 * half + 32 * (quarter % 2) + i::210]
                low = column.translate(LOW if quarter < 2 else HIGH)
                code = both(low, top.translate(PAIR[quarter]).translate(TIMES[16]))
                groups.put(128 * half + 32 * quarter + i, code)
    return groups.values()


def f32(data):
    return array.array("f", data)


def f16(data):
    return array.array("f", struct.unpack("<%de" % (len(data) // 2), data))


def bf16(data):  # the upper half of a float32
    raw = bytearray(2 * len(data))
    raw[2::4] = data[0::2]
    raw[3::4] = data[1::2]
    return array.array("f", bytes(raw))


# The number that stands for a type in a file: name, values and bytes of a block, function.
TYPES = {
    0: ("F32", 1, 4, f32),
    1: ("F16", 1, 2, f16),
    2: ("Q4_0", 32, 18, q4_0),
    3: ("Q4_1", 32, 20, q4_1),
    6: ("Q5_0", 32, 22, q5_0),
    7: ("Q5_1", 32, 24, q5_1),
    8: ("Q8_0", 32, 34, q8_0),
    10: ("Q2_K", 256, 84, q2_k),
    11: ("Q3_K", 256, 110, q3_k),
    12: ("Q4_K", 256, 144, q4_k),
    13: ("Q5_K", 256, 176, q5_k),
    14: ("Q6_K", 256, 210, q6_k),
    30: ("BF16", 1, 2, bf16),
}


# ---- the file ----


class Tensor:
    def __init__(self, name, shape, kind, at):
        self.name = name
        self.shape = shape  # outermost first, as safetensors and PyTorch have it
        self.kind = kind  # a key of TYPES
        self.at = at  # in the file
        self.count = math.prod(shape)

    @property
    def type_name(self):
        return TYPES[self.kind][0]


class GgufFile:
    """A .gguf file, or the one inside a wheel (or another zip file), which is unpacked to a temporary file."""

    STEP = 1 << 20  # values that are made at a time; a multiple of every block

    def __init__(self, path, scratch=None):
        if sys.byteorder != "little":
            raise GgufError("this machine is big-endian, and GGUF files are read as they are")
        self.path = path
        with unpacked(path, scratch) if zipfile.is_zipfile(path) else open(path, "rb") as file:
            try:
                self.data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)  # lives on without the file
            except ValueError:
                raise GgufError("%s: the file is empty" % path) from None
        self.at = 0
        try:
            self.read_head()
        except (struct.error, UnicodeDecodeError) as error:
            raise GgufError("%s: broken at byte %d: %s" % (path, self.at, error)) from None

    def number(self, form):
        (value,) = struct.unpack_from("<" + form, self.data, self.at)
        self.at += struct.calcsize("<" + form)
        return value

    def text(self):
        size = self.number("Q")
        if size > len(self.data) - self.at:
            raise GgufError("%s: broken at byte %d: a text of %d bytes" % (self.path, self.at, size))
        value = self.data[self.at:self.at + size].decode("utf-8")
        self.at += size
        return value

    def value(self, kind):
        forms = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
        if kind == 8:
            return self.text()
        if kind == 9:
            item, count = self.number("I"), self.number("Q")
            return [self.value(item) for _ in range(count)]
        if kind not in forms:
            raise GgufError("%s: broken at byte %d: there is no type %d" % (self.path, self.at, kind))
        return self.number(forms[kind])

    def read_head(self):
        if self.data[:4] != b"GGUF":
            raise GgufError("%s: not a GGUF file: it begins with %r" % (self.path, self.data[:4]))
        self.at = 4
        version = self.number("I")
        if version not in (2, 3):
            raise GgufError("%s: GGUF version %d; 2 and 3 are read" % (self.path, version))
        tensors, pairs = self.number("Q"), self.number("Q")
        self.metadata = {}
        for _ in range(pairs):
            key = self.text()
            self.metadata[key] = self.value(self.number("I"))
        heads = [self.read_tensor_head() for _ in range(tensors)]
        align = self.metadata.get("general.alignment", 32)
        start = -(-self.at // align) * align
        self.tensors = {}
        for name, shape, kind, at in heads:
            self.tensors[name] = self.checked(Tensor(name, shape, kind, start + at))

    def read_tensor_head(self):
        name = self.text()
        shape = [self.number("Q") for _ in range(self.number("I"))]
        return name, shape[::-1], self.number("I"), self.number("Q")

    def checked(self, tensor):
        where = "%s: tensor '%s'" % (self.path, tensor.name)
        if tensor.kind not in TYPES:
            known = ", ".join(name for name, *_ in TYPES.values())
            raise GgufError("%s has type number %d, which is not read (read: %s)" % (where, tensor.kind, known))
        name, values, size, _ = TYPES[tensor.kind]
        if not tensor.shape or tensor.shape[-1] % values != 0:
            raise GgufError("%s: shape %s is no whole blocks of %s" % (where, tensor.shape, name))
        if tensor.at + tensor.count // values * size > len(self.data):
            raise GgufError("%s lies beyond the end of the file, which is cut off" % where)
        return tensor

    def values(self, tensor):
        """The tensor as float32, a piece after the other."""
        _, values, size, function = TYPES[tensor.kind]
        end = tensor.at + tensor.count // values * size
        step = self.STEP // values * size
        for at in range(tensor.at, end, step):
            yield function(self.data[at:min(at + step, end)])


def unpacked(path, scratch):
    with zipfile.ZipFile(path) as packed:
        names = [name for name in packed.namelist() if name.endswith(".gguf")]
        if len(names) != 1:
            raise GgufError("%s: one .gguf file is wanted inside, here are %d" % (path, len(names)))
        file = tempfile.TemporaryFile(dir=scratch)
        with packed.open(names[0]) as source:
            shutil.copyfileobj(source, file, 1 << 20)
    file.flush()
    return file
