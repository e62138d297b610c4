"""Calls of the package datasets: the files that it finds for each split, by their paths alone or by a card."""
import os

import datasets
from datasets.data_files import DataFilesDict, get_data_patterns

datasets.logging.set_verbosity_error()


def splits_by_paths(base, ending):
    """Returns the files of each split whose names have this ending, each once. Returns None if datasets finds none."""
    patterns = get_data_patterns(base)
    found = DataFilesDict.from_patterns(patterns, base_path=base)
    return {str(split): sorted({os.path.relpath(path, base) for path in paths if path.endswith(ending)})
            for split, paths in found.items()}


def splits_by_card(base):
    """Returns the files of each split of each configuration; splits of the default one have their plain names."""
    found = {}
    configs = datasets.get_dataset_config_names(base)
    default = datasets.get_dataset_default_config_name(base) or configs[0]
    for config in configs:
        builder = datasets.load_dataset_builder(base, config)
        for split, paths in builder.config.data_files.items():
            label = str(split) if config == default else f"{config}/{split}"
            found[label] = sorted({os.path.relpath(str(path), base) for path in paths})
    return found


def rows(base, split):
    return list(datasets.load_dataset(base, split=split))
