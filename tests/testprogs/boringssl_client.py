# SPDX-License-Identifier: GPL-2.0-only
"""A client on BoringSSL (curl_cffi): says `ready`, and at a line of input connects COUNT times.

boringssl_client.py PORT COUNT CA_FILE
"""

import sys

from curl_cffi import requests  # type: ignore[import-not-found]  # only its test has it

OK = 200


def main() -> None:
    """Connect, and then stay until the input ends."""
    port, count, authorities = sys.argv[1:4]
    print("ready", flush=True)
    sys.stdin.readline()
    for _ in range(int(count)):
        with requests.Session(verify=authorities) as session:
            if session.get(f"https://127.0.0.1:{port}/").status_code != OK:
                sys.exit("refused")
    print("done", flush=True)
    sys.stdin.readline()


if __name__ == "__main__":
    main()
