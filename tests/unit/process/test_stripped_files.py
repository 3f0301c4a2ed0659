# SPDX-License-Identifier: GPL-2.0-only
"""What is known of functions without a symbol: stubs, and source files that their code mentions."""

import re
from collections.abc import Callable
from pathlib import Path

from tlstax.collectors.binary.elf import Elf
from tlstax.collectors.binary.import_stubs import imported_name
from tlstax.collectors.binary.instructions import decode
from tlstax.collectors.binary.source_files import SourceFiles
from tlstax.tests.unit.process.examples import address_of, place

Compile = Callable[..., Path]


def test_stubs_are_named_after_what_they_call(libraries: dict[str, Path]) -> None:
    """SSL_accept leaves through a stub: objdump calls it SSL_do_handshake@plt."""
    path = libraries["libssl"]
    address, size = address_of(path, "SSL_accept")
    with Elf(path) as elf:
        jumps = [i for i in decode(elf.code_at(address, size), address) if i.is_jmp_short_or_near]
        for jump in jumps:
            if imported_name(elf, jump.near_branch_target):
                break
    found = place(path, jump.near_branch_target)
    assert (found.symbol, found.symbol_offset_bytes) == ("SSL_do_handshake@plt", 0)
    assert place(path, jump.near_branch_target + 6).symbol == "SSL_do_handshake@plt"


def test_stubs_of_every_kind(compile_c: Compile) -> None:
    source = '#include <stdio.h>\nint main(void) { return puts("") + (int)(long)&puts; }'
    for number, flags in enumerate((["-Wl,-z,lazy"], ["-fcf-protection=full"], ["-fno-plt"])):
        path = compile_c(source, "-fPIE", "-pie", *flags, name=f"stubs{number}")
        with Elf(path) as elf:
            names = set()
            for section in (".plt", ".plt.sec", ".plt.got"):
                if stubs := elf.section(section):
                    for offset in range(0, stubs.size, 8):
                        if named := imported_name(elf, stubs.address + offset):
                            names.add(named[0])
        assert ("puts" in names) == (flags != ["-fno-plt"]), names


def test_source_files_of_nameless_functions(libraries: dict[str, Path]) -> None:
    """Functions with names show whether the files found are right."""
    expected = {
        "X509_verify_cert": "crypto/x509/x509_vfy.c",
        "EVP_DigestSign": "crypto/evp/m_sigver.c",
        "OPENSSL_LH_insert": "crypto/lhash/lhash.c",
        "BN_mod_exp_mont_consttime": "crypto/bn/bn_exp.c",
        "RSA_sign": "crypto/rsa/",
    }
    with Elf(libraries["libcrypto"]) as elf:
        sources = SourceFiles(elf)
        for symbol in elf.find(re.compile("|".join(expected))):
            found = sources.of(symbol.address, symbol.address + symbol.size)
            assert found == expected.pop(symbol.name)
    assert expected == {}


def test_source_directories_agree_with_names(libraries: dict[str, Path]) -> None:
    """All of one family's functions lie in its directories, or nothing is said about them."""
    families = {
        r"BN_\w+": {"crypto/bn", "crypto/asn1"},
        r"X509V3_EXT_\w+": {"crypto/x509"},
        r"EC_POINT_\w+": {"crypto/ec"},
        r"OSSL_STORE_\w+": {"crypto/store"},
    }
    with Elf(libraries["libcrypto"]) as elf:
        sources = SourceFiles(elf)
        for family, directories in families.items():
            symbols = elf.find(re.compile(family))
            found = [sources.of(s.address, s.address + s.size) for s in symbols]
            wrong = {name for name in found if name and name.rpartition("/")[0] not in directories}
            assert wrong == set()
            assert sum(map(bool, found)) > len(found) / 2
