import sys

from tests.wasm import main

sys.exit(main(sys.argv[1:]))
