"""What the chapters of the lessons show and no recording has: python -m benchmarks.chapter_cases > CASES

On a machine with the recorded GPU `python -m kernels record --out FILE --modes cold --cases CASES` then measures it.
"""

from __future__ import annotations

from tests.helpers.chapters import WITH_STORY, open_chapter, story, unmeasured


def main() -> None:
    cases = {}
    for lesson in WITH_STORY:
        for n in range(len(story(lesson).chapters)):
            _, _, evidences = open_chapter(lesson, n)
            if case := unmeasured(evidences):
                cases[str(case)] = None
    print("\n".join(cases))


if __name__ == "__main__":
    main()
