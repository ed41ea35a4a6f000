"""Interpreter work that does not leave the interpreter: search, objects, text, big integers."""

import sys
from pathlib import Path


def queens(size: int, row: int = 0, columns: int = 0, left: int = 0, right: int = 0) -> int:
    """Count the ways to put queens on a board: recursion and small integers."""
    if row == size:
        return 1
    found = 0
    free = ~(columns | left | right) & ((1 << size) - 1)
    while free:
        place = free & -free
        free ^= place
        found += queens(size, row + 1, columns | place, (left | place) << 1, (right | place) >> 1)
    return found


class Account:
    """Something with attributes and methods."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.balance = 0
        self.moves: list[int] = []

    def move(self, amount: int) -> None:
        """Change the balance, and remember by how much."""
        self.balance += amount
        self.moves.append(amount)
        if len(self.moves) > 50:
            self.moves = [sum(self.moves)]


def accounts(moves: int) -> int:
    """Move money between objects: attributes, methods, lists."""
    people = [Account(f"account {number}") for number in range(200)]
    state = 1
    for _ in range(moves):
        state = (state * 1103515245 + 12345) & 0x7FFFFFFF
        giver, taker = people[state % 200], people[(state >> 8) % 200]
        giver.move(-(state % 100))
        taker.move(state % 100)
    assert sum(person.balance for person in people) == 0
    return sum(person.balance * place for place, person in enumerate(people))


def words(path: str) -> str:
    """Count words and pairs of words: strings, dictionaries, sorting."""
    counts: dict[str, int] = {}
    pairs: dict[tuple[str, str], int] = {}
    last = ""
    with Path(path).open(encoding="ascii") as text:
        for line in text:
            for token in line.split():
                word = token.strip(".,").lower()
                counts[word] = counts.get(word, 0) + 1
                pairs[last, word] = pairs.get((last, word), 0) + 1
                last = word
    word, times = min(counts.items(), key=lambda item: (-item[1], item[0]))
    (first, second), together = min(pairs.items(), key=lambda item: (-item[1], item[0]))
    return f"{len(counts)} {word} {times} {len(pairs)} {first} {second} {together}"


def primes(limit: int) -> int:
    """Add up primes: a generator, a byte array, slices."""
    sieve = bytearray([1]) * limit
    for number in range(2, int(limit**0.5) + 1):
        if sieve[number]:
            sieve[number * number :: number] = bytes(len(range(number * number, limit, number)))
    return sum(number for number in range(2, limit) if sieve[number])


def main() -> None:
    """Do everything a number of times; every round must find the same."""
    rounds, path = int(sys.argv[1]), sys.argv[2]
    found = {
        f"queens {queens(8)} primes {primes(200_000)}\n"
        f"accounts {accounts(40_000)}\n"
        f"words {words(path)}\n"
        f"power {pow(3, 10**9 + 7, 10**40 + 121)}"
        for _ in range(rounds)
    }
    print(f"rounds {rounds}", *sorted(found), sep="\n")


main()
