"""Settings of all tests that pytest runs."""
import gc


def pytest_collection_finish(session):
    """Python would look at the 500,000 objects of imported modules and collected tests again and again, in search of
    garbage: a sixth of the processor time of tests/interop. They stay until the end."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
