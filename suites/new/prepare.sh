#!/bin/sh
# Makes the input of smooth.sh in the directory it is started in: COUNT numbers from 0 to 999,
# the same on every machine.
# usage: prepare.sh COUNT
exec awk -v count="$1" 'BEGIN {
  seed = 2024
  for (i = 0; i < count; i++) {
    seed = (seed * 16807) % 2147483647
    print seed % 1000
  }
}' > numbers.txt
