# SPDX-License-Identifier: Apache-2.0
"""What scale.py refuses: counts that differ from the table, and a table that grows where nothing may."""

import copy
import pathlib
import unittest

import scale

TABLE = scale.parse((scale.HERE / "table.txt").read_text())
STEP = "start, a step, stop"


def changed(table, phase, what, calls=lambda n: 0, moved=lambda n: 0, whom=(scale.FIRST, scale.OTHERS)):
    """The table with so many more calls and bytes on n ranks."""
    table = copy.deepcopy(table)
    for ranks in scale.RUNS[next(iter(scale.PHASES[phase]))]:
        both = list(table.setdefault((phase, what), {}).get(ranks, (scale.NOTHING, scale.NOTHING)))
        for who in whom:
            fewest, most, size = both[who]
            both[who] = scale.Counts(fewest + calls(ranks), most + calls(ranks), size + moved(ranks))
        table[phase, what][ranks] = tuple(both)
    return table


class Scale(unittest.TestCase):
    def refuses(self, counts, *texts):
        found = "\n".join(scale.mistakes(counts, TABLE))
        for text in texts:
            self.assertIn(text, found)

    def test_the_table_is_what_it_lists(self):
        self.assertEqual(scale.mistakes(TABLE, TABLE), [])
        self.assertGreater(len(TABLE), 100)
        self.assertEqual({phase for phase, _ in TABLE}, set(scale.PHASES))

    def test_a_message_to_every_other_rank(self):
        self.refuses(changed(TABLE, STEP, "send world", lambda n: n - 1, lambda n: 8 * (n - 1)),
                     f"{STEP} on 32 ranks: send world: the first rank makes 155 calls, 124 are listed")

    def test_more_collectives(self):
        for phase, ranks, what, more in ((STEP, 2, "allreduce world", 40), (STEP, 2, "allgather world", 5), ("mixed mesh", 8, "split world", 1)):
            with self.subTest(what):
                listed = TABLE[phase, what][ranks][scale.OTHERS].most
                self.refuses(changed(TABLE, phase, what, lambda n, more=more: more, lambda n: 600 * n),
                             f"{phase} on {ranks} ranks: {what}: another rank makes {listed + more} calls, {listed} are listed")

    def test_bytes_of_each_rank(self):
        self.refuses(changed(TABLE, STEP, "broadcast world", moved=lambda n: 64 * n), f"{STEP} on 32 ranks: broadcast world")

    def test_memory_of_each_rank(self):
        for what, kept in (("strings", 112), ("0.45 % of a process", 700_000)):
            with self.subTest(what):
                self.refuses(changed(TABLE, STEP, scale.MEMORY, moved=lambda n, kept=kept: kept * n), "another rank keeps", "of each rank, 100 are allowed")

    def test_another_file(self):
        self.refuses(changed(TABLE, STEP, "look out/.abc", lambda n: 1), "look out/.abc: another rank makes 1 calls, 0 are listed")

    def test_a_call_that_is_gone(self):
        self.refuses({key: value for key, value in TABLE.items() if key != ("a load", "allreduce world")}, "makes 0 calls, 5 are listed")

    def test_a_table_that_grows(self):
        for what, calls in (("look out/.abc", lambda n: n), ("send world", lambda n: n - 1), ("allreduce world", lambda n: n),
                            ("receive world", lambda n: n * n)):
            with self.subTest(what):
                table = changed(TABLE, STEP, what, calls)
                self.assertTrue(scale.mistakes(table, table))
        table = changed(TABLE, "a load", "broadcast world", moved=lambda n: 2000 * n)
        self.assertTrue(scale.mistakes(table, table))

    def test_what_is_written_is_read_alike(self):
        self.assertEqual(scale.parse(scale.written(TABLE)), TABLE)

    def test_the_documentation_shows_the_table(self):
        page = (pathlib.Path(__file__).parents[3] / "docs/counted-calls.md").read_text()
        self.assertEqual(scale.markdown(TABLE), page, "scale.py --markdown >docs/counted-calls.md")


if __name__ == "__main__":
    unittest.main()
