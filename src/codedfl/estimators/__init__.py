"""Scikit-learn estimators: coded federated learning from arrays and frames.

Example:
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> model = CodedClassifier(devices=5, random_state=0).fit(X, y)
    >>> model.predict(X[:2]), model.scheme_
    (array([0, 0]), 'fed3r')
"""

from codedfl.estimators._estimators import CodedClassifier, CodedRegressor

__all__ = ["CodedClassifier", "CodedRegressor"]
