# SPDX-License-Identifier: GPL-2.0-only
"""What an unnamed function computes, recognised by its instructions (x86-64).

Distributions strip libcrypto: the functions in which TLS spends its time have no names. They can
still be recognised, because each algorithm needs specific instructions or constants:

- `aes`: AES-NI and VAES rounds, or a reference to the AES tables (FIPS 197)
- `ghash`: carry-less multiplication together with the byte reversal of GCM (SP 800-38D)
- `sha`: SHA instructions, or the round constants of SHA-1 and SHA-2 (FIPS 180-4)
- `md5`: its round constants (RFC 1321); `keccak`: its rotation counts (FIPS 202)
- `chacha`: rotations by exactly 16, 12, 8 and 7 (RFC 8439)
- `poly1305`: reduction modulo 2^130 - 5, by the clamp, the limb masks or the `and -4`/`shr 2` step
- `bignum`: mulx, adcx, adox, vpmadd52, or many long multiplications and additions with carry
- `rdrand`: rdrand and rdseed
- two of them in one function (`aes+ghash`, `aes+sha`, `chacha+poly1305`): stitched code

What can be misjudged: code for CPUs without AES-NI that uses neither instructions nor tables
(bit-sliced and vector-permute AES) gives no evidence; elliptic curves over binary fields use the
same carry-less multiplication as GHASH and differ only in the missing byte reversal, they
count as `bignum`; helpers of an assembly module that only load and store (tails, transposing) give
no evidence; generic C for a hash is recognised by its constants only while the compiler keeps them
in this function; RC4-MD5 stitched code counts as `md5`; Poly1305 and RSA share their vector
multiplications and differ in their limb masks. "" means no evidence; it is shown as such, and no
algorithm is guessed.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final

from iced_x86 import Instruction, Mnemonic, OpKind, Register

from tlstax.collectors.binary.instructions import decode

ReadConstant = Callable[[int, int], bytes]  # (virtual address, size) -> bytes of the file


def _mnemonics(*prefixes: str) -> frozenset[int]:
    """The mnemonics whose names begin with one of these prefixes."""
    return frozenset(value for name, value in vars(Mnemonic).items() if name.startswith(prefixes))


AES: Final = _mnemonics("AES", "VAES")
CARRYLESS: Final = _mnemonics("PCLMUL", "VPCLMUL")
BYTE_SHUFFLE: Final = _mnemonics("PSHUFB", "VPSHUFB")
SHA: Final = _mnemonics("SHA1", "SHA256", "VSHA512")
LONG_CARRY: Final = _mnemonics("MULX", "ADCX", "ADOX", "VPMADD52")
VECTOR_MULTIPLY: Final = _mnemonics("PMULUDQ", "VPMULUDQ", "VPMADD52")
CARRY: Final = frozenset({Mnemonic.ADC, Mnemonic.SBB})
RANDOM: Final = _mnemonics("RDRAND", "RDSEED")
ROTATE: Final = frozenset({Mnemonic.ROL, Mnemonic.ROR, Mnemonic.RORX})
VECTOR_ROTATE: Final = _mnemonics("VPROL")
SHIFT_LEFT: Final = _mnemonics("PSLLD", "VPSLLD")
SHIFT_RIGHT: Final = _mnemonics("PSRLD", "VPSRLD")

CHACHA_ROTATIONS: Final = frozenset({16, 12, 8, 7})
# The rho offsets of Keccak, as left rotations of 64 bits; other rotation counts are rare.
KECCAK_ROTATIONS: Final = frozenset(
    {1, 62, 28, 27, 36, 44, 6, 55, 20, 3, 10, 43, 25, 39, 41, 45, 15, 21, 8, 18, 2, 61, 56, 14}
)
SHA1_CONSTANTS: Final = frozenset({0x5A827999, 0x6ED9EBA1, 0xCA62C1D6})
MD5_CONSTANTS: Final = frozenset({0xD76AA478, 0xE8C7B756, 0xEB86D391})
POLY1305_CLAMP: Final = frozenset({0x0FFFFFFC0FFFFFFF, 0x0FFFFFFC0FFFFFFC})
MINUS_FOUR: Final = 0xFFFFFFFFFFFFFFFC

# First bytes of tables and masks that code addresses relative to the instruction pointer.
TABLES: Final = (
    (bytes.fromhex("982f8a4291443771"), "sha"),  # SHA-256 K
    (bytes.fromhex("22ae28d7982f8a42"), "sha"),  # SHA-512 K
    (bytes.fromhex("982f8a42982f8a42"), "sha"),  # SHA-256 K, each word repeated for vectors
    (bytes.fromhex("9979825a9979825a"), "sha"),  # SHA-1 K, likewise
    (bytes.fromhex("a1ebd96ea1ebd96e"), "sha"),
    (bytes.fromhex("637c777bf26b6fc5"), "aes"),  # S-box
    (bytes.fromhex("52096ad53036a538"), "aes"),  # inverse S-box
    (bytes.fromhex("c66363a5c66363a5"), "aes"),  # Te, doubled words
    (bytes.fromhex("a56363c6847c7cf8"), "aes"),  # Te0 in C, little endian
    (bytes.fromhex("ffffff0300000000"), "poly1305"),  # 26-bit limbs
    (bytes.fromhex("ffffffffff0f0000"), "poly1305"),  # 44-bit limbs
    (bytes.fromhex("ffffffffff030000"), "poly1305"),  # 42-bit limb
)
# Code often keeps a pointer into the middle of a table, or to another constant just before it.
TABLE_OFFSETS: Final = (0, 64, 128, 256, -64)

STITCHED: Final = (("aes", "ghash"), ("aes", "sha"), ("chacha", "poly1305"))
# If several are found that are no stitched code, the more specific one counts.
PRECEDENCE: Final = (
    "aes", "sha", "chacha", "poly1305", "ghash", "md5", "keccak", "rdrand", "bignum",
)  # fmt: skip


def classify(code: bytes, address: int, read_constant: ReadConstant) -> str:
    """The algorithm that a function's code shows, "" if none is recognised.

    `code` is the whole function, or its known part, starting at `address` (the file's own virtual
    address, as read_constant takes it).
    """
    signs = _Signs()
    for instruction in decode(code, address):
        signs.add(instruction)
    found = set(_by_instruction(signs)) | set(_by_number(signs))
    found |= _by_table(signs.references, read_constant)
    if "poly1305" in found and not _multiplies(signs):
        found.discard("poly1305")  # the same masks occur elsewhere
    for pair in STITCHED:
        if found.issuperset(pair):
            return "+".join(pair)
    return next((name for name in PRECEDENCE if name in found), "")


class _Signs:
    """What is counted in one function."""

    def __init__(self) -> None:
        self.count = 0
        self.mnemonics: Counter[int] = Counter()
        self.carries = 0
        self.rotations: Counter[int] = Counter()  # left rotations, in bits
        self.wide_rotations: set[int] = set()
        self.shifts: set[tuple[str, int]] = set()
        self.numbers: set[int] = set()
        self.steps: set[tuple[int, int]] = set()  # (mnemonic, immediate) of and, mov, shr
        self.references: set[int] = set()

    def add(self, instruction: Instruction) -> None:
        mnemonic = instruction.mnemonic
        self.count += 1
        self.mnemonics[mnemonic] += 1
        # Subtracting a register from itself with borrow is how C makes a mask: not counted.
        same = instruction.op0_register == instruction.op1_register
        self.carries += mnemonic in CARRY and not (mnemonic == Mnemonic.SBB and same)
        last = instruction.op_count - 1
        immediate = None
        if last >= 0 and OpKind.IMMEDIATE8 <= instruction.op_kind(last) <= OpKind.IMMEDIATE32TO64:
            immediate = instruction.immediate(last)
            self.numbers.add(immediate if immediate >> 63 == 0 else immediate & 0xFFFFFFFF)
        if instruction.is_ip_rel_memory_operand:
            self.references.add(instruction.ip_rel_memory_address)
        elif instruction.memory_displ_size:
            self.numbers.add(instruction.memory_displacement & 0xFFFFFFFF)
        if immediate is None:
            return
        if mnemonic in ROTATE:
            self._add_rotation(instruction, immediate & 63)
        elif mnemonic in VECTOR_ROTATE:
            self.rotations[immediate & 63] += 1
        elif mnemonic in SHIFT_LEFT:
            self.shifts.add(("left", immediate & 63))
        elif mnemonic in SHIFT_RIGHT:
            self.shifts.add(("right", immediate & 63))
        elif mnemonic in (Mnemonic.AND, Mnemonic.MOV, Mnemonic.SHR):
            self.steps.add((mnemonic, immediate))

    def _add_rotation(self, instruction: Instruction, bits: int) -> None:
        first = instruction.op0_register if instruction.op0_kind == OpKind.REGISTER else 0
        width = 64 if Register.RAX <= first <= Register.R15 else 32
        left = bits if instruction.mnemonic == Mnemonic.ROL else width - bits
        self.rotations[left] += 1
        if width == 64:
            self.wide_rotations.add(left)

    def any_of(self, mnemonics: Iterable[int]) -> int:
        """How many instructions have one of these mnemonics."""
        return sum(self.mnemonics[mnemonic] for mnemonic in mnemonics)


def _by_instruction(signs: _Signs) -> Iterable[str]:
    if signs.any_of(AES):
        yield "aes"
    if carryless := signs.any_of(CARRYLESS):
        # Multiplication in binary fields takes three and never reverses bytes.
        yield "ghash" if carryless > 3 or signs.any_of(BYTE_SHUFFLE) else "bignum"
    if signs.any_of(SHA):
        yield "sha"
    if signs.any_of(RANDOM):
        yield "rdrand"
    multiplications = signs.mnemonics[Mnemonic.MUL]
    carries = signs.carries
    signed = signs.mnemonics[Mnemonic.IMUL]
    if signs.any_of(LONG_CARRY) or any(
        (
            multiplications >= 4 and (multiplications + carries) * 20 >= signs.count,
            carries >= 8 and carries * 12 >= signs.count,
            carries >= 4 and carries * 7 >= signs.count,
            signed >= 24 and signed * 12 >= signs.count,
            _multiplies(signs) >= 40,
        )
    ):
        yield "bignum"


def _multiplies(signs: _Signs) -> int:
    return signs.any_of(VECTOR_MULTIPLY) + signs.mnemonics[Mnemonic.MUL]


def _by_number(signs: _Signs) -> Iterable[str]:
    if signs.numbers >= SHA1_CONSTANTS:
        yield "sha"
    if signs.numbers >= MD5_CONSTANTS:
        yield "md5"
    small = {bits for bits in signs.rotations if bits}
    shifted = {("left", 12), ("right", 20), ("left", 7), ("right", 25)}
    if small == CHACHA_ROTATIONS or signs.shifts >= shifted:
        yield "chacha"
    if len(signs.wide_rotations & KECCAK_ROTATIONS) >= 20:
        yield "keccak"
    reduction = {(Mnemonic.MOV, MINUS_FOUR), (Mnemonic.SHR, 2), (Mnemonic.AND, 3)}
    if signs.numbers >= POLY1305_CLAMP or signs.steps >= reduction:
        yield "poly1305"


def _by_table(references: Iterable[int], read_constant: ReadConstant) -> set[str]:
    found = set()
    for reference in references:
        for offset in TABLE_OFFSETS:
            start = read_constant(reference - offset, 8)
            found |= {name for first, name in TABLES if start == first}
    return found
