#!/bin/sh
# Runs the simulator over 850 seeds, or over 10,000 with KOLO_TEST_LONG=1.
# usage: run_seeds.sh PATH-OF-kolo_sim
last=850
[ "${KOLO_TEST_LONG:-0}" = 1 ] && last=10000
exec "$1" --seeds "1..$last" --jobs 2
