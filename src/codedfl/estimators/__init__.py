"""Scikit-learn estimators: coded federated learning from arrays and frames.

Example:
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> model = CodedClassifier(devices=5, random_state=0).fit(X, y)
    >>> model.predict(X[:2]), model.n_iter_
    (array([0, 0]), 100)
"""

from codedfl.estimators._classifier import CodedClassifier
from codedfl.estimators._regressor import CodedRegressor

__all__ = ["CodedClassifier", "CodedRegressor"]
