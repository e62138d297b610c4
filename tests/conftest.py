"""Settings of all tests that pytest runs."""
import gc


def pytest_collection_finish(session):
    """Python would look at the 500,000 objects of imported modules and collected tests again and again, in search of
    garbage: a tenth of the processor time of tests/interop. They stay until the end. Garbage itself is looked for as
    often as ever: some holds connections, and a server bounds their number."""
    gc.collect()
    gc.freeze()
