#!/bin/bash
cd /root || exit 1
python3 -u /root/train.py "$@"
echo "run.sh: trainer ended with $?"
