"""Clusters, transformers, encoders, texts and pipelines of scikit-learn: yields fitted
cases."""

import numpy as np
from skl2onnx.common import data_types as types
from sklearn import (
    cluster,
    compose,
    decomposition,
    ensemble,
    feature_extraction,
    feature_selection,
    impute,
    linear_model,
    mixture,
    pipeline,
    preprocessing,
    random_projection,
    svm,
)

from data import CLASSES, COLOURS, COUNTS, DICTS, KINDS, MISSING, TABLE, TEXT, TWO, WORDS, X, Y
from kinds import Case, each, tensor


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


PARTS = (
    clusters,
    scalers,
    selectors,
    encoders,
    texts,
    pipelines,
)
