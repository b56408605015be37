"""python3 -m attnrun_convert"""
import sys

from .cli import main

if __name__ == "__main__":
    sys.exit(main())
