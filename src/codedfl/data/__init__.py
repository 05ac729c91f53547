"""Datasets and users' own files, feature maps, partitions, and the federation that they make."""

from __future__ import annotations

from codedfl.data._cells import precision_for
from codedfl.data._dataset import Dataset, TargetEncoding, Task, TaskChoice, fit_targets, one_hot, require_targets
from codedfl.data._features import FeatureMap, MapKind, Scaling, fit_feature_map
from codedfl.data._federation import DeviceSummary, Federation, build_federation
from codedfl.data._fitting import fit_preprocessing
from codedfl.data._loading import is_file_name, load_dataset
from codedfl.data._memmap import is_federation_folder, open_federation, save_federation
from codedfl.data._numeric import Table, read_frame, read_npz_tables, read_numeric_table
from codedfl.data._partition import (
    Partition,
    PartitionKind,
    partition,
    partition_by_column,
    partition_dirichlet,
    partition_iid,
    partition_shards,
)
from codedfl.data._preprocessing import Column, Preprocessing
from codedfl.data._registry import DatasetStatus, dataset_names, is_plugin_dataset, list_datasets
from codedfl.data._tables import Columns, read_table, table_columns

__all__ = [
    "Column",
    "Columns",
    "Dataset",
    "DatasetStatus",
    "DeviceSummary",
    "FeatureMap",
    "Federation",
    "MapKind",
    "Partition",
    "PartitionKind",
    "Preprocessing",
    "Scaling",
    "Table",
    "TargetEncoding",
    "Task",
    "TaskChoice",
    "build_federation",
    "dataset_names",
    "fit_feature_map",
    "fit_preprocessing",
    "fit_targets",
    "is_federation_folder",
    "is_file_name",
    "is_plugin_dataset",
    "list_datasets",
    "load_dataset",
    "one_hot",
    "open_federation",
    "partition",
    "partition_by_column",
    "partition_dirichlet",
    "partition_iid",
    "partition_shards",
    "precision_for",
    "read_frame",
    "read_npz_tables",
    "read_numeric_table",
    "read_table",
    "require_targets",
    "save_federation",
    "table_columns",
]
