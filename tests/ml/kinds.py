"""One case or more for each kind of model that skl2onnx converts, and for the models of
LightGBM, XGBoost and CatBoost: yields Case objects of fitted models."""

import dataclasses
import warnings

import numpy as np
from skl2onnx.common import data_types as types
from sklearn import (
    calibration,
    cluster,
    compose,
    cross_decomposition,
    decomposition,
    discriminant_analysis,
    ensemble,
    feature_extraction,
    feature_selection,
    gaussian_process,
    impute,
    linear_model,
    mixture,
    model_selection,
    multiclass,
    multioutput,
    naive_bayes,
    neighbors,
    neural_network,
    pipeline,
    preprocessing,
    random_projection,
    svm,
    tree,
)
from sklearn.gaussian_process import kernels

from data import (
    CLASSES,
    COLOURS,
    COUNTS,
    DICTS,
    KINDS,
    LABELS,
    MISSING,
    POSITIVE,
    TABLE,
    TEXT,
    TWO,
    WORDS,
    X,
    Y,
    Y2,
)

warnings.filterwarnings("ignore")
FORMS = {"f4": types.FloatTensorType, "f8": types.DoubleTensorType, "i8": types.Int64TensorType}


ONLY = []  # texts of which one must be in a name; nothing else is fitted then


def wanted(name):
    return not ONLY or any(text in name for text in ONLY)


@dataclasses.dataclass
class Case:
    name: str
    model: object
    x: object  # what it is run with: an array, a list of texts, a table
    initial: list = None  # types of the inputs; None: one input "X" of the array
    options: dict = None
    opset: object = None
    convert: object = None  # another converter: model -> ModelProto
    expected: object = None  # the output where ONNX Runtime's is not the right one


def tensor(x, dtype):
    return [("X", FORMS[dtype]([None, np.shape(x)[1]]))]


def each(name, make, x, y, forms=("f4", "f8"), options=({},)):
    """The model for each element type and set of options."""
    if not wanted(name):
        return
    model = make.fit(x, y) if y is not None else make.fit(x)
    for dtype in forms:
        for chosen in options:
            label = "-".join([name, dtype] + [f"{k}_{v}" for k, v in chosen.items()])
            given = {id(model): chosen} if chosen else None
            yield Case(label, model, np.asarray(x).astype(dtype), tensor(x, dtype), given)


ZIPMAPS = ({}, {"zipmap": False}, {"zipmap": "columns"})
PLAIN = ({"zipmap": False},)
RAW = ({"zipmap": False}, {"zipmap": False, "raw_scores": True}, {"nocl": True})
PATHS = ({"zipmap": False, "decision_path": True}, {"zipmap": False, "decision_leaf": True})


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


def clusters():
    yield from each("KMeans", cluster.KMeans(4, n_init=2), X, None, ("f4", "f8", "i8"))
    yield from each("MiniBatchKMeans", cluster.MiniBatchKMeans(4, n_init=2), X, None)
    for kind in ("full", "tied", "diag", "spherical"):
        for case in each(
            f"GaussianMixture-{kind}",
            mixture.GaussianMixture(3, covariance_type=kind),
            X,
            None,
            ("f4", "f8"),
            ({}, {"score_samples": True}),
        ):
            case.opset = 18
            yield case
        yield from each(
            f"BayesianGaussianMixture-{kind}",
            mixture.BayesianGaussianMixture(n_components=3, covariance_type=kind),
            X,
            None,
            ("f4",),
        )
    for kernel in ("linear", "poly", "rbf", "sigmoid", "cosine"):
        yield from each(f"KernelPCA-{kernel}", decomposition.KernelPCA(2, kernel=kernel), X, None)
    for name in ("PCA", "IncrementalPCA", "TruncatedSVD"):
        yield from each(name, getattr(decomposition, name)(3), X, None, ("f4", "f8", "i8"))
    yield from each("PCA-whiten", decomposition.PCA(3, whiten=True), X, None)


def scalers():
    for name in (
        "Binarizer",
        "MaxAbsScaler",
        "MinMaxScaler",
        "Normalizer",
        "PolynomialFeatures",
        "RobustScaler",
        "StandardScaler",
        "QuantileTransformer",
    ):
        yield from each(name, getattr(preprocessing, name)(), X, None, ("f4", "f8", "i8"))
    yield from each("MinMaxScaler-clip", preprocessing.MinMaxScaler(clip=True), X, None)
    yield from each("Normalizer-l1", preprocessing.Normalizer("l1"), X, None)
    for case in each("Normalizer-max", preprocessing.Normalizer("max"), X, None, ("f4",)):
        case.expected = case.model.transform  # ONNX Runtime leaves the sign out of the maximum
        yield case
    for name, x in (("yeo-johnson", X), ("box-cox", np.abs(X) + 1)):
        yield from each(f"PowerTransformer-{name}", preprocessing.PowerTransformer(name), x, None)
    for encode in ("onehot-dense", "ordinal"):
        yield from each(
            f"KBinsDiscretizer-{encode}",
            preprocessing.KBinsDiscretizer(4, encode=encode),
            X,
            None,
        )
    yield from each("FunctionTransformer", preprocessing.FunctionTransformer(), X, None)
    yield from each("KernelCenterer", preprocessing.KernelCenterer(), X[:6], None)
    for name in ("mean", "median", "most_frequent", "constant"):
        yield from each(
            f"SimpleImputer-{name}", impute.SimpleImputer(strategy=name), MISSING, None
        )
    yield from each(
        "SimpleImputer-zero", impute.SimpleImputer(missing_values=0), COUNTS, None, ("f4", "i8")
    )
    yield from each(
        "GaussianRandomProjection", random_projection.GaussianRandomProjection(3), X, None
    )
    yield from each(
        "TfidfTransformer", feature_extraction.text.TfidfTransformer(), COUNTS, None, ("f4", "f8")
    )
    yield from each(
        "TfidfTransformer-log",
        feature_extraction.text.TfidfTransformer(sublinear_tf=True, norm="l1"),
        COUNTS,
        None,
        ("f4",),
    )


def selectors():
    score = feature_selection.f_classif
    made = {
        "GenericUnivariateSelect": {"param": 3, "mode": "k_best"},
        "SelectFdr": {},
        "SelectFpr": {},
        "SelectFwe": {},
        "SelectKBest": {"k": 3},
        "SelectPercentile": {"percentile": 50},
    }
    for name, arguments in made.items():
        yield from each(
            name, getattr(feature_selection, name)(score, **arguments), X, CLASSES, ("f4", "i8")
        )
    estimator = linear_model.LogisticRegression()
    yield from each("RFE", feature_selection.RFE(estimator), X, CLASSES)
    yield from each("RFECV", feature_selection.RFECV(estimator), X, CLASSES)
    yield from each("SelectFromModel", feature_selection.SelectFromModel(estimator), X, CLASSES)
    yield from each("VarianceThreshold", feature_selection.VarianceThreshold(0.5), X, None)


def encoders():
    words = [("X", types.StringTensorType([None, 3]))]
    for name, make in {
        "OneHotEncoder": preprocessing.OneHotEncoder(sparse_output=False),
        "OneHotEncoder-ignore": preprocessing.OneHotEncoder(handle_unknown="ignore"),
        "OneHotEncoder-drop": preprocessing.OneHotEncoder(drop="first", sparse_output=False),
        "OneHotEncoder-rare": preprocessing.OneHotEncoder(min_frequency=40),
        "OrdinalEncoder": preprocessing.OrdinalEncoder(),
        "OrdinalEncoder-unknown": preprocessing.OrdinalEncoder(
            handle_unknown="use_encoded_value", unknown_value=-1
        ),
    }.items():
        yield Case(f"{name}-text", make.fit(COLOURS), COLOURS, words)
        numbers = type(make)(**make.get_params()).fit(KINDS)
        for dtype in ("i8", "f4"):
            yield Case(f"{name}-{dtype}", numbers, KINDS.astype(dtype), tensor(KINDS, dtype))
    yield Case(
        "SimpleImputer-text",
        impute.SimpleImputer(strategy="most_frequent", missing_values="").fit(
            COLOURS.astype(object)
        ),
        COLOURS,
        words,
    )
    target = preprocessing.TargetEncoder()
    yield Case("TargetEncoder-text", target.fit(COLOURS, Y), COLOURS, words)
    yield Case(
        "TargetEncoder-i8",
        preprocessing.TargetEncoder().fit(KINDS, TWO),
        KINDS,
        tensor(KINDS, "i8"),
    )
    column = [("X", types.StringTensorType([None]))]
    yield Case("LabelEncoder-text", preprocessing.LabelEncoder().fit(WORDS), WORDS, column)
    yield Case(
        "LabelEncoder-i8",
        preprocessing.LabelEncoder().fit(CLASSES + 4),
        CLASSES + 4,
        [("X", types.Int64TensorType([None]))],
    )
    yield Case(
        "LabelBinarizer-i8",
        preprocessing.LabelBinarizer().fit(CLASSES),
        CLASSES,
        [("X", types.Int64TensorType([None]))],
    )
    yield Case("LabelBinarizer-text", preprocessing.LabelBinarizer().fit(WORDS), WORDS, column)


def vectorizer_case(name, model, initial, options=None):
    """ONNX Runtime refuses a locale that the machine does not have."""
    return Case(
        name, model.fit(TEXT), TEXT, initial, {id(model): dict(options or {}, locale="C")}
    )


def texts():
    column = [("X", types.StringTensorType([None, 1]))]
    flat = [("X", types.StringTensorType([None]))]
    text = feature_extraction.text
    for kind in (text.CountVectorizer, text.TfidfVectorizer):
        for analyzer, ranges in (
            ("word", ((1, 1), (1, 2))),
            ("char", ((1, 2),)),
            ("char_wb", ((2, 3),)),
        ):
            for ngrams in ranges:
                for lower in (True, False):
                    make = kind(analyzer=analyzer, ngram_range=ngrams, lowercase=lower)
                    name = f"{kind.__name__}-{analyzer}-{ngrams[1]}-{lower}"
                    yield vectorizer_case(name, make, flat)
    separators = {"separators": [" ", "[.]", ";"]}
    for name, arguments, given in (
        ("stop", {"stop_words": ["is", "a"]}, None),
        ("binary", {"binary": True}, None),
        ("pattern", {"token_pattern": "[a-zA-Z]+"}, {"tokenexp": "[a-zA-Z]+"}),
        ("separators", {}, separators),
        ("log", {"sublinear_tf": True, "norm": "l1"}, None),
    ):
        kind = text.TfidfVectorizer if name == "log" else text.CountVectorizer
        yield vectorizer_case(f"{kind.__name__}-{name}", kind(**arguments), flat, given)
    words = text.TfidfVectorizer()
    model = pipeline.make_pipeline(words, linear_model.LogisticRegression()).fit(TEXT, CLASSES)
    yield Case("Pipeline-text", model, TEXT[:, None], column, {id(words): {"locale": "C"}})
    hashed = feature_extraction.FeatureHasher(8, input_type="string")
    yield Case("FeatureHasher", hashed.fit(TEXT[:, None]), TEXT[:, None], column)
    for sort in (True, False):
        model = feature_extraction.DictVectorizer(sparse=False, sort=sort).fit(DICTS)
        yield Case(
            f"DictVectorizer-{sort}",
            model,
            DICTS,
            [("X", types.DictionaryType(types.StringTensorType([1]), types.FloatTensorType([])))],
        )
    model = feature_extraction.DictVectorizer(sparse=False).fit(DICTS)
    model = pipeline.make_pipeline(model, linear_model.LogisticRegression()).fit(DICTS, CLASSES)
    yield Case(
        "DictVectorizer-pipeline",
        model,
        DICTS,
        [("X", types.DictionaryType(types.StringTensorType([1]), types.FloatTensorType([])))],
    )


def pipelines():
    columns = [
        ("a", types.FloatTensorType([None, 1])),
        ("b", types.FloatTensorType([None, 1])),
        ("n", types.Int64TensorType([None, 1])),
        ("colour", types.StringTensorType([None, 1])),
        ("other", types.StringTensorType([None, 1])),
    ]

    def table():
        return compose.ColumnTransformer(
            [
                (
                    "reals",
                    pipeline.make_pipeline(
                        impute.SimpleImputer(), preprocessing.StandardScaler()
                    ),
                    ["a", "b"],
                ),
                ("count", preprocessing.KBinsDiscretizer(3, encode="onehot-dense"), ["n"]),
                (
                    "words",
                    preprocessing.OneHotEncoder(handle_unknown="ignore"),
                    ["colour", "other"],
                ),
            ]
        )

    yield Case("ColumnTransformer", table().fit(TABLE), TABLE, columns)
    passed = compose.ColumnTransformer(
        [
            ("a", preprocessing.StandardScaler(), ["a"]),
            ("b", "passthrough", ["b"]),
            ("n", "drop", ["n"]),
        ]
    )
    yield Case(
        "ColumnTransformer-pass",
        passed.fit(TABLE[["a", "b", "n"]]),
        TABLE[["a", "b", "n"]],
        columns[:3],
    )
    for name, last, y in (
        ("linear", linear_model.LogisticRegression(), WORDS),
        ("trees", ensemble.RandomForestClassifier(5), CLASSES),
        ("svm", svm.SVC(probability=True, random_state=0), CLASSES),
        ("regressor", ensemble.GradientBoostingRegressor(n_estimators=5), Y),
    ):
        model = pipeline.make_pipeline(table(), last).fit(TABLE, y)
        yield Case(f"Pipeline-{name}", model, TABLE, columns)
    union = pipeline.make_union(preprocessing.StandardScaler(), decomposition.PCA(2))
    yield from each("FeatureUnion", union, X, None)
    both = pipeline.make_pipeline(
        union, feature_selection.SelectKBest(k=3), linear_model.LogisticRegression()
    )
    yield from each("Pipeline-union", both, X, CLASSES)


def sklearn_cases():
    for part in (
        linear_classifiers,
        linear_regressors,
        support_vectors,
        trees,
        boosted,
        several,
        other_classifiers,
        neighbours,
        clusters,
        scalers,
        selectors,
        encoders,
        texts,
        pipelines,
    ):
        yield from part()
