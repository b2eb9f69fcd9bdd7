"""Where the pictures go."""

import pathlib

import pytest


def pytest_addoption(parser):
    parser.addoption("--images", default=None)


@pytest.fixture(scope="session")
def images(request, tmp_path_factory):
    """The folder for what the notebooks draw."""
    named = request.config.getoption("--images")
    folder = pathlib.Path(named) if named else tmp_path_factory.mktemp("images")
    folder.mkdir(parents=True, exist_ok=True)
    return folder
