"""A child whose rows look like measurements, for tests of the store."""

from kernels.jobs.child import main
from tests.helpers.rows_of import a_row


def answer(request, progress):
    return [a_row(rung=rung) for rung in request.rungs]


if __name__ == "__main__":
    main(answer)
