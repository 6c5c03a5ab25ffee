"""When a fragment runs, the browser still receives all that the page drew before it, in order."""

import pytest
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from streamlit.runtime.forward_msg_queue import ForwardMsgQueue

from pages.streamlit_patches.unsent_messages import install, streamlit_clear


@pytest.fixture
def mended(monkeypatch):
    monkeypatch.setattr(ForwardMsgQueue, "clear", streamlit_clear)  # puts it back after the test
    install()


def drawn(place, fragment=""):
    """Returns the message that draws an element at the place, in the fragment of that name."""
    message = ForwardMsg()
    message.metadata.delta_path.extend([0, place])
    message.delta.new_element.markdown.body = f"{place} {fragment}"
    if fragment:
        message.delta.fragment_id = fragment
    return message


def complete():
    message = ForwardMsg()
    message.script_finished = ForwardMsg.FINISHED_SUCCESSFULLY
    return message


def a_page():
    return [drawn(0), drawn(1, "polls"), drawn(2), complete()]


def queue_of(messages):
    queue = ForwardMsgQueue()
    for message in messages:
        queue.enqueue(message)
    return queue


def test_a_fragment_leaves_the_page_before_it_whole(mended):
    queue = queue_of(a_page())
    queue.clear(retain_lifecycle_msgs=True, fragment_ids_this_run=["polls"])
    again = drawn(1, "polls")
    queue.enqueue(again)
    assert queue.flush() == [*a_page(), again]


def test_a_run_of_the_page_still_drops_the_run_before_it(mended):
    queue = queue_of(a_page())
    queue.clear(retain_lifecycle_msgs=True)
    (left,) = queue.flush()
    assert left.script_finished == ForwardMsg.FINISHED_EARLY_FOR_RERUN
    assert queue.is_empty()


def test_streamlit_alone_would_say_complete_and_leave_the_fragment_out():
    """If this fails, Streamlit has mended its queue: `pages/streamlit_patches/unsent_messages.py` can go."""
    queue = queue_of(a_page())
    streamlit_clear(queue, retain_lifecycle_msgs=True, fragment_ids_this_run=["polls"])
    assert queue.flush() == [drawn(0), drawn(2), complete()]
