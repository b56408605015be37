"""Classifiers, regressors and neighbours of scikit-learn: yields fitted cases."""

import numpy as np
from sklearn import (
    calibration,
    cross_decomposition,
    discriminant_analysis,
    ensemble,
    gaussian_process,
    impute,
    linear_model,
    model_selection,
    multiclass,
    multioutput,
    naive_bayes,
    neighbors,
    neural_network,
    svm,
    tree,
)
from sklearn.gaussian_process import kernels

from data import CLASSES, COUNTS, KINDS, LABELS, MISSING, POSITIVE, TWO, WORDS, X, Y, Y2
from kinds import PATHS, PLAIN, RAW, ZIPMAPS, each


def linear_classifiers():
    yield from each(
        "LogisticRegression",
        linear_model.LogisticRegression(),
        X,
        CLASSES,
        ("f4", "f8", "i8"),
        ZIPMAPS + RAW[1:] + ({"output_class_labels": True},),
    )
    yield from each(
        "LogisticRegression-two",
        linear_model.LogisticRegression(),
        X,
        TWO,
        ("f4",),
        ZIPMAPS + RAW[1:],
    )
    yield from each(
        "LogisticRegression-words",
        linear_model.LogisticRegression(),
        X,
        WORDS,
        ("f4",),
        ZIPMAPS + ({"nocl": True},),
    )
    for name in (
        "LogisticRegressionCV",
        "SGDClassifier",
        "Perceptron",
        "RidgeClassifier",
        "RidgeClassifierCV",
    ):
        for target in (CLASSES, TWO):
            yield from each(
                f"{name}-{len(set(target))}",
                getattr(linear_model, name)(),
                X,
                target,
                ("f4",),
                PLAIN,
            )
    yield from each(
        "PassiveAggressiveClassifier",
        linear_model.PassiveAggressiveClassifier(),
        X,
        CLASSES,
        ("f4",),
        PLAIN,
    )
    for loss in ("log_loss", "modified_huber"):
        yield from each(
            f"SGDClassifier-{loss}",
            linear_model.SGDClassifier(loss=loss),
            X,
            CLASSES,
            ("f4",),
            RAW[:2],
        )
    yield from each("LinearSVC", svm.LinearSVC(), X, CLASSES, ("f4", "i8"), PLAIN)
    yield from each("LinearSVC-two", svm.LinearSVC(), X, TWO, ("f4",), PLAIN)
    yield from each(
        "LinearDiscriminantAnalysis",
        discriminant_analysis.LinearDiscriminantAnalysis(),
        X,
        CLASSES,
        ("f4", "f8"),
        PLAIN,
    )
    yield from each(
        "QuadraticDiscriminantAnalysis",
        discriminant_analysis.QuadraticDiscriminantAnalysis(),
        X,
        CLASSES,
        ("f4",),
        PLAIN,
    )
    yield from each("SGDOneClassSVM", linear_model.SGDOneClassSVM(), X, None, ("f4", "f8"))


def linear_regressors():
    for name in (
        "ARDRegression",
        "BayesianRidge",
        "ElasticNet",
        "ElasticNetCV",
        "HuberRegressor",
        "Lars",
        "LarsCV",
        "Lasso",
        "LassoCV",
        "LassoLars",
        "LassoLarsCV",
        "LassoLarsIC",
        "LinearRegression",
        "OrthogonalMatchingPursuit",
        "OrthogonalMatchingPursuitCV",
        "PassiveAggressiveRegressor",
        "RANSACRegressor",
        "Ridge",
        "RidgeCV",
        "SGDRegressor",
        "TheilSenRegressor",
        "QuantileRegressor",
    ):
        yield from each(name, getattr(linear_model, name)(), X, Y)
    for name in (
        "MultiTaskElasticNet",
        "MultiTaskElasticNetCV",
        "MultiTaskLasso",
        "MultiTaskLassoCV",
    ):
        yield from each(name, getattr(linear_model, name)(), X, Y2)
    for name in ("GammaRegressor", "PoissonRegressor", "TweedieRegressor"):
        yield from each(name, getattr(linear_model, name)(), X, POSITIVE)
    yield from each(
        "LinearRegression-two", linear_model.LinearRegression(), X, Y2, ("f4", "f8", "i8")
    )
    yield from each("LinearSVR", svm.LinearSVR(), X, Y)
    yield from each("PLSRegression", cross_decomposition.PLSRegression(2), X, Y2)


def support_vectors():
    for name, y in (("SVC", CLASSES), ("SVC", TWO), ("NuSVC", CLASSES), ("SVC", WORDS)):
        for kernel in ("linear", "rbf", "poly", "sigmoid"):
            for likely in (False, True):
                make = getattr(svm, name)(kernel=kernel, probability=likely, random_state=0)
                yield from each(
                    f"{name}-{kernel}-{likely}-{len(set(y))}-{y.dtype.kind}",
                    make,
                    X,
                    y,
                    ("f4", "f8"),
                    RAW if kernel == "rbf" else PLAIN,
                )
    for kernel in ("linear", "rbf", "poly", "sigmoid"):
        yield from each(f"SVR-{kernel}", svm.SVR(kernel=kernel), X, Y)
        yield from each(f"NuSVR-{kernel}", svm.NuSVR(kernel=kernel), X, Y, ("f4",))
        yield from each(f"OneClassSVM-{kernel}", svm.OneClassSVM(kernel=kernel), X, None)
    yield from each("SVC-ovo", svm.SVC(decision_function_shape="ovo"), X, CLASSES, ("f4",), PLAIN)


def trees():
    for name in ("DecisionTreeClassifier", "ExtraTreeClassifier"):
        for y in (CLASSES, TWO, WORDS):
            yield from each(
                f"{name}-{len(set(y))}-{y.dtype.kind}",
                getattr(tree, name)(max_depth=4),
                X,
                y,
                ("f4", "f8", "i8"),
                ZIPMAPS + PATHS + ({"nocl": True},),
            )
        yield from each(
            f"{name}-outputs", getattr(tree, name)(max_depth=4), X, LABELS, ("f4",), PLAIN
        )
    for name in ("DecisionTreeRegressor", "ExtraTreeRegressor"):
        for y in (Y, Y2):
            yield from each(
                f"{name}-{y.ndim}",
                getattr(tree, name)(max_depth=4),
                X,
                y,
                ("f4", "f8", "i8"),
                ({}, {"decision_path": True}, {"decision_leaf": True}),
            )
    for name in ("RandomForestClassifier", "ExtraTreesClassifier"):
        for y in (CLASSES, TWO):
            yield from each(
                f"{name}-{len(set(y))}",
                getattr(ensemble, name)(5, max_depth=4),
                X,
                y,
                ("f4", "f8"),
                PLAIN + PATHS,
            )
        yield from each(
            f"{name}-outputs", getattr(ensemble, name)(5, max_depth=4), X, LABELS, ("f4",), PLAIN
        )
    for name in ("RandomForestRegressor", "ExtraTreesRegressor"):
        for y in (Y, Y2):
            yield from each(
                f"{name}-{y.ndim}",
                getattr(ensemble, name)(5, max_depth=4),
                X,
                y,
                ("f4", "f8"),
                ({}, {"decision_path": True}, {"decision_leaf": True}),
            )
    yield from each(
        "RandomTreesEmbedding", ensemble.RandomTreesEmbedding(4, sparse_output=False), X, None
    )
    yield from each(
        "IsolationForest",
        ensemble.IsolationForest(n_estimators=10),
        X,
        None,
        ("f4", "f8"),
        ({}, {"score_samples": True}),
    )


def boosted():
    for y in (CLASSES, TWO):
        yield from each(
            f"GradientBoostingClassifier-{len(set(y))}",
            ensemble.GradientBoostingClassifier(n_estimators=6),
            X,
            y,
            ("f4", "f8"),
            RAW,
        )
        yield from each(
            f"HistGradientBoostingClassifier-{len(set(y))}",
            ensemble.HistGradientBoostingClassifier(max_iter=6),
            MISSING,
            y,
            ("f4", "f8"),
            RAW,
        )
        yield from each(
            f"AdaBoostClassifier-{len(set(y))}",
            ensemble.AdaBoostClassifier(n_estimators=5),
            X,
            y,
            ("f4", "f8"),
            RAW[:2],
        )
    for loss in ("squared_error", "absolute_error", "huber"):
        yield from each(
            f"GradientBoostingRegressor-{loss}",
            ensemble.GradientBoostingRegressor(n_estimators=6, loss=loss),
            X,
            Y,
        )
    yield from each(
        "HistGradientBoostingRegressor",
        ensemble.HistGradientBoostingRegressor(max_iter=6),
        MISSING,
        Y,
    )
    yield from each("AdaBoostRegressor", ensemble.AdaBoostRegressor(n_estimators=5), X, Y)


def several():
    logistic, ridge = linear_model.LogisticRegression(), linear_model.Ridge()
    forest = tree.DecisionTreeClassifier(max_depth=3)
    for y in (CLASSES, TWO):
        n = len(set(y))
        for kind, inner in (("linear", logistic), ("tree", forest)):
            yield from each(
                f"BaggingClassifier-{kind}-{n}",
                ensemble.BaggingClassifier(inner, 4),
                X,
                y,
                ("f4",),
                PLAIN,
            )
            yield from each(
                f"OneVsRestClassifier-{kind}-{n}",
                multiclass.OneVsRestClassifier(inner),
                X,
                y,
                ("f4",),
                PLAIN,
            )
            yield from each(
                f"OneVsOneClassifier-{kind}-{n}",
                multiclass.OneVsOneClassifier(inner),
                X,
                y,
                ("f4",),
                PLAIN,
            )
        for voting in ("soft", "hard"):
            yield from each(
                f"VotingClassifier-{voting}-{n}",
                ensemble.VotingClassifier([("a", logistic), ("b", forest)], voting=voting),
                X,
                y,
                ("f4",),
                PLAIN,
            )
        yield from each(
            f"StackingClassifier-{n}",
            ensemble.StackingClassifier([("a", logistic), ("b", forest)]),
            X,
            y,
            ("f4",),
            PLAIN,
        )
        for method in ("sigmoid", "isotonic"):
            yield from each(
                f"CalibratedClassifierCV-{method}-{n}",
                calibration.CalibratedClassifierCV(forest, method=method, cv=2),
                X,
                y,
                ("f4",),
                PLAIN,
            )
    yield from each(
        "OneVsRestClassifier-labels",
        multiclass.OneVsRestClassifier(logistic),
        X,
        LABELS,
        ("f4",),
        PLAIN,
    )
    yield from each(
        "TunedThresholdClassifierCV",
        model_selection.TunedThresholdClassifierCV(logistic),
        X,
        TWO,
        ("f4",),
        PLAIN,
    )
    yield from each("BaggingRegressor", ensemble.BaggingRegressor(ridge, 4), X, Y)
    yield from each(
        "VotingRegressor",
        ensemble.VotingRegressor([("a", ridge), ("b", tree.DecisionTreeRegressor(max_depth=3))]),
        X,
        Y,
    )
    yield from each(
        "StackingRegressor",
        ensemble.StackingRegressor(
            [("a", ridge), ("b", tree.DecisionTreeRegressor(max_depth=3))]
        ),
        X,
        Y,
    )
    yield from each(
        "GridSearchCV",
        model_selection.GridSearchCV(logistic, {"C": [0.1, 1]}),
        X,
        CLASSES,
        ("f4",),
        PLAIN,
    )
    yield from each(
        "GridSearchCV-regressor", model_selection.GridSearchCV(ridge, {"alpha": [1, 2]}), X, Y
    )
    yield from each(
        "MultiOutputClassifier",
        multioutput.MultiOutputClassifier(logistic),
        X,
        LABELS,
        ("f4",),
        PLAIN,
    )
    yield from each("MultiOutputRegressor", multioutput.MultiOutputRegressor(ridge), X, Y2)


def other_classifiers():
    for name in ("BernoulliNB", "GaussianNB", "MultinomialNB", "ComplementNB", "CategoricalNB"):
        x = KINDS if name == "CategoricalNB" else X if name == "GaussianNB" else COUNTS
        for y in (CLASSES, TWO):
            yield from each(
                f"{name}-{len(set(y))}", getattr(naive_bayes, name)(), x, y, ("f4", "i8"), RAW
            )
    for y in (CLASSES, TWO):
        yield from each(
            f"MLPClassifier-{len(set(y))}",
            neural_network.MLPClassifier((8,), max_iter=50),
            X,
            y,
            ("f4", "f8"),
            PLAIN,
        )
        yield from each(
            f"GaussianProcessClassifier-{len(set(y))}",
            gaussian_process.GaussianProcessClassifier(),
            X[::4],
            y[::4],
            ("f4", "f8"),
            PLAIN,
        )
    yield from each(
        "MLPClassifier-labels",
        neural_network.MLPClassifier((8,), max_iter=50),
        X,
        LABELS,
        ("f4",),
        PLAIN,
    )
    for activation in ("logistic", "tanh", "identity", "relu"):
        yield from each(
            f"MLPRegressor-{activation}",
            neural_network.MLPRegressor(
                hidden_layer_sizes=(8,), activation=activation, max_iter=50
            ),
            X,
            Y2,
        )
    for name, kernel in {
        "rbf": kernels.RBF(),
        "dot": kernels.DotProduct(),
        "sine": kernels.ExpSineSquared(),
        "matern": kernels.Matern(nu=1.5),
        "rational": kernels.RationalQuadratic(),
        "sum": kernels.ConstantKernel(2) * kernels.RBF() + kernels.WhiteKernel(0.1),
        "pairwise": kernels.PairwiseKernel(metric="cosine"),
    }.items():
        yield from each(
            f"GaussianProcessRegressor-{name}",
            gaussian_process.GaussianProcessRegressor(kernel, alpha=10.0, optimizer=None),
            X[::4],
            Y[::4],
            ("f4", "f8"),
            ({}, {"return_std": True}) if name == "rbf" else ({},),
        )


def neighbours():
    """Run beside the points that they were fitted to: how far a point is from itself is a
    matter of rounding, and decides where weights are distances."""
    for case in neighbours_of_points():
        case.x = case.x + np.asarray(0.05).astype(case.x.dtype)
        yield case


def neighbours_of_points():
    for metric in ("euclidean", "manhattan", "minkowski"):
        for weights in ("uniform", "distance"):
            for optimum in ({}, {"optim": "cdist"}):
                for name, y in (
                    ("KNeighborsClassifier", CLASSES),
                    ("KNeighborsRegressor", Y2),
                    ("RadiusNeighborsClassifier", CLASSES),
                    ("RadiusNeighborsRegressor", Y),
                ):
                    radius = {"radius": 9.0} if "Radius" in name else {}
                    made = getattr(neighbors, name)(metric=metric, weights=weights, **radius)
                    chosen = dict(optimum, **({"zipmap": False} if "Classifier" in name else {}))
                    yield from each(f"{name}-{metric}-{weights}", made, X, y, ("f4",), (chosen,))
    for optimum in ({}, {"optim": "cdist"}):
        yield from each(
            "NearestNeighbors", neighbors.NearestNeighbors(), X, None, ("f4",), (optimum,)
        )
        yield from each(
            "KNeighborsTransformer",
            neighbors.KNeighborsTransformer(),
            X,
            None,
            ("f4",),
            (optimum,),
        )
        yield from each("KNNImputer", impute.KNNImputer(), MISSING, None, ("f4",), (optimum,))
        yield from each(
            "LocalOutlierFactor",
            neighbors.LocalOutlierFactor(novelty=True),
            X,
            None,
            ("f4", "f8"),
            (optimum,),
        )
    yield from each(
        "NeighborhoodComponentsAnalysis", neighbors.NeighborhoodComponentsAnalysis(2), X, CLASSES
    )


PARTS = (
    linear_classifiers,
    linear_regressors,
    support_vectors,
    trees,
    boosted,
    several,
    other_classifiers,
    neighbours,
)
