# SPDX-License-Identifier: GPL-2.0-only
"""What nameless functions are taken for: those of the system's libcrypto, and made-up ones."""

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tlstax.collectors.binary.code_evidence import KECCAK_ROTATIONS, classify
from tlstax.collectors.binary.elf import Elf
from tlstax.collectors.binary.nameless import NamelessFunctions
from tlstax.collectors.binary.unwind_table import UnwindTable

Compile = Callable[..., Path]

# OpenSSL's assembly modules sign themselves in the text section; their functions stand before that.
BANNERS = {
    "AES for x86_64": {"aes"},
    "AESNI-CBC+SHA1 stitch": {"aes+sha"},
    "AESNI-CBC+SHA256 stitch": {"aes+sha"},
    "AES for Intel AES-NI": {"aes"},
    "GF(2^m) Multiplication": {"bignum"},
    "Montgomery Multiplication for": {"bignum"},
    "Montgomery Multiplication with scatter/gather": {"bignum"},
    "ChaCha20": {"chacha"},
    "X25519 primitives": {"bignum"},
    "AES-NI GCM module": {"aes+ghash", "aes", "ghash"},
    "GHASH": {"ghash"},
    "Poly1305": {"poly1305"},
    "Keccak-1600": {"keccak"},
    "SHA1 multi-block": {"sha"},
    "SHA1 block": {"sha"},
    "SHA256 multi-block": {"sha"},
    "SHA256 block": {"sha"},
    "SHA512 block": {"sha"},
}


def constants(elf: Elf) -> Callable[[int, int], bytes]:
    def read(address: int, size: int) -> bytes:
        offset = elf.to_offset(address)
        return elf.data[offset : offset + size] if offset is not None else b""

    return read


def evidence(path: Path) -> list[tuple[int, int, str]]:
    """(start, end, evidence) of every function."""
    found = []
    with Elf(path) as elf:
        unwind = UnwindTable(elf)
        for index in range(len(unwind)):
            bounds = unwind.entry(index)
            assert bounds is not None
            code = elf.code_at(bounds.start, bounds.end - bounds.start)
            found.append((bounds.start, bounds.end, classify(code, bounds.start, constants(elf))))
    return found


def test_instructions_agree_with_the_signatures_of_the_modules(libraries: dict[str, Path]) -> None:
    path = libraries["libcrypto"]
    functions = evidence(path)
    checked = 0
    with Elf(path) as elf:
        for banner in re.finditer(rb"([ -~]{4,60}?) for x86_64[^\0]*CRYPTOGAMS", elf.data):
            name = banner[1].decode() + " for"
            expected = next((kinds for key, kinds in BANNERS.items() if key in name + " "), None)
            address = elf.to_address(banner.start())
            if expected is None or address is None:
                continue
            # In front of the signature, or behind it (SHA extensions were added there).
            near = [
                kind for start, end, kind in functions
                if kind and (0 <= address - end < 8192 or 0 <= start - address < 4096)
            ]  # fmt: skip
            assert expected & set(near), (name, near)
            checked += 1
    assert checked >= 12, "this libcrypto does not sign its assembly modules in .text"


def test_most_of_libcrypto_and_all_of_libssl_give_no_evidence(libraries: dict[str, Path]) -> None:
    kinds = Counter(kind for _, _, kind in evidence(libraries["libcrypto"]))
    assert kinds[""] > 0.95 * kinds.total()
    assert {"aes", "ghash", "aes+ghash", "aes+sha", "sha", "bignum", "chacha", "poly1305"} <= set(
        kinds
    )
    assert {kind for _, _, kind in evidence(libraries["libssl"])} == {""}


def test_named_functions_that_are_known_get_the_right_evidence(libraries: dict[str, Path]) -> None:
    expected = {"AES_encrypt": "aes", "AES_cbc_encrypt": "aes", "EVP_DigestSign": "",
                "X509_verify_cert": "", "CRYPTO_malloc": "", "BN_bn2bin": ""}  # fmt: skip
    with Elf(libraries["libcrypto"]) as elf:
        found = {
            symbol.name: classify(
                elf.code_at(symbol.address, symbol.size), symbol.address, constants(elf)
            )
            for symbol in elf.find(re.compile("|".join(expected)))
        }
    assert found == expected


AESENC = "aesenc %xmm1,%xmm0"
CLMUL = "pclmulqdq $0,%xmm1,%xmm0"
SHUFFLE = "pshufb %xmm2,%xmm0"
MULTIPLY = "mul %rcx; add %rax,%r8; adc %rdx,%r9; adc $0,%r10"
CHACHA = "; ".join(f"add %ebx,%eax; xor %eax,%edx; rol ${bits},%edx" for bits in (16, 12, 8, 7))
CASES = {
    "aes": [AESENC, "aesdeclast %xmm1,%xmm0"],
    "ghash": [CLMUL, SHUFFLE],
    "aes+ghash": [AESENC, CLMUL, SHUFFLE],
    "sha": ["sha256rnds2 %xmm1,%xmm2", "sha256msg1 %xmm1,%xmm2"],
    "aes+sha": [AESENC, "sha1rnds4 $0,%xmm1,%xmm2"],
    "bignum": [MULTIPLY] * 4,
    "chacha": [CHACHA],
    "keccak": [f"rol ${bits},%rax" for bits in sorted(KECCAK_ROTATIONS)],
    "poly1305": [*[MULTIPLY] * 4, "mov $-4,%rax", "and %r10,%rax", "shr $2,%r10", "and $3,%r10"],
    "chacha+poly1305": [CHACHA, MULTIPLY, "mov $-4,%rax", "shr $2,%r10", "and $3,%r10"],
    "md5": ["lea 0xd76aa478(%rax),%eax", "lea 0xe8c7b756(%rax),%eax", "lea 0xeb86d391(%rax),%eax"],
    "rdrand": ["rdrand %rax"],
    "": ["mul %rcx", "rol $16,%eax", "sbb %rax,%rax", "pshufb %xmm1,%xmm0"],
}
MORE = [
    ("bignum", [CLMUL] * 3),  # multiplication in a binary field reverses no bytes
    ("bignum", ["mulx %rax,%rbx,%rcx", "adcx %rax,%rbx"]),
    ("bignum", ["add %rax,%r8", "adc %rbx,%r9", "adc %rcx,%r10", "adc %rdx,%r11", "sbb $0,%r12"]),
    ("", ["sbb %rax,%rax"] * 8),  # masks, as C compilers make them
    ("sha", [f"lea {k}(%rax,%rbx),%eax" for k in ("0x5a827999", "0x6ed9eba1", "0xca62c1d6")]),
    ("chacha", ["pslld $12,%xmm0", "psrld $20,%xmm1", "pslld $7,%xmm0", "psrld $25,%xmm1"]),
    ("", ["and $3,%eax", "shr $2,%eax", "mov $-4,%rbx"]),  # no multiplication: no Poly1305
]


@pytest.mark.parametrize(("kind", "lines"), [*CASES.items(), *MORE])
def test_small_functions_of_each_kind(compile_c: Compile, kind: str, lines: list[str]) -> None:
    body = "\\n".join([*lines, "ret"])
    source = f'asm(".globl f\\n.type f, @function\\nf: {body}\\n.size f, .-f\\n");'
    with Elf(compile_c(source + "int main(void) { return 0; }")) as elf:
        (symbol,) = elf.find(re.compile("f"))
        code = elf.code_at(symbol.address, symbol.size)
        assert classify(code, symbol.address, constants(elf)) == kind


@pytest.mark.parametrize(
    ("kind", "first"),
    [
        ("sha", "0x428a2f98, 0x71374491"),
        ("sha", "0xd728ae22, 0x428a2f98"),
        ("aes", "0xc66363a5, 0xf87c7c84"),
        ("", "0x00000001, 0x00000002"),
    ],
)
def test_tables_in_c(compile_c: Compile, kind: str, first: str) -> None:
    source = f"""
    const unsigned table[64] = {{ {first} }};
    unsigned f(unsigned i) {{ return table[i & 63] ^ i; }}
    int main(void) {{ return f(1); }}"""
    with Elf(compile_c(source, "-fPIE", "-pie")) as elf:
        (symbol,) = elf.find(re.compile("f"))
        code = elf.code_at(symbol.address, symbol.size)
        assert classify(code, symbol.address, constants(elf)) == kind


def test_a_function_among_others_of_one_kind_is_of_that_kind(compile_c: Compile) -> None:
    kinds = {"before": MULTIPLY, "between": "mov (%rdi),%rax", "after": MULTIPLY}
    source = "".join(
        f'asm(".globl {name}\\n.type {name}, @function\\n{name}: .cfi_startproc\\n'
        f'{"; ".join([line] * 4)}; ret\\n.cfi_endproc\\n.size {name}, .-{name}\\n");\n'
        for name, line in kinds.items()
    )
    with Elf(compile_c(source + "int main(void) { return 0; }")) as elf:
        nameless = NamelessFunctions(elf, "libcrypto")
        for symbol in elf.find(re.compile("before|between|after")):
            bounds, kind = nameless.describe(symbol.address + 2)
            assert bounds == (symbol.address, symbol.address + symbol.size)
            assert kind == "bignum"
        (main,) = elf.find(re.compile("main"))
        assert nameless.describe(main.address)[1] == "", "nothing of that kind behind it"
        assert NamelessFunctions(elf, "libother").describe(symbol.address)[1] == ""


def test_damaged_code_gives_no_evidence_and_no_error() -> None:
    assert classify(b"\x06" * 40, 0x1000, lambda address, size: b"") == ""
    assert classify(b"", 0x1000, lambda address, size: b"") == ""
