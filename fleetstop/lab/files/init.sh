#!/bin/bash
# PID 1 of a practice container: reaps what is re-parented to it, ends on TERM and PWR.
trap 'exit 0' TERM PWR
while :; do
    sleep 86400 &
    wait $!
done
