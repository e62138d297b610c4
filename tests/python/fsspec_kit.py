"""A table, and the registration of the file system, for its tests."""
import fsspec
import pandas
import pytest

from tensord.fsspec import TensordFileSystem, TensordTlsFileSystem

TABLE = pandas.DataFrame({"n": range(5000), "half": [n / 2 for n in range(5000)]})


@pytest.fixture(autouse=True)
def registered():
    for made in (TensordFileSystem, TensordTlsFileSystem):
        fsspec.register_implementation(made.protocol, made, clobber=True)
        made.clear_instance_cache()
