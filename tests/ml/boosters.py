"""Models of LightGBM, XGBoost and CatBoost, as onnxmltools, skl2onnx and CatBoost export
them."""

import tempfile

import catboost
import lightgbm
import numpy as np
import onnx
import onnxmltools
import xgboost
from onnxmltools.convert.common.data_types import FloatTensorType
from onnxmltools.convert.lightgbm.operator_converters.LightGbm import convert_lightgbm
from onnxmltools.convert.xgboost.operator_converters.XGBoost import convert_xgboost
from skl2onnx import update_registered_converter
from skl2onnx.common import data_types as types
from skl2onnx.common.shape_calculator import (
    calculate_linear_classifier_output_shapes,
    calculate_linear_regressor_output_shapes,
)
from sklearn import pipeline, preprocessing

from data import CLASSES, COUNTS, MISSING, POSITIVE, TWO, X, Y
from kinds import Case

INPUT = [("X", FloatTensorType([None, X.shape[1]]))]


def register():
    """Pipelines of skl2onnx with boosted models in them."""
    classifier = {
        "nocl": [True, False],
        "zipmap": [True, False, "columns"],
        "raw_scores": [True, False],
    }
    for made, alias, convert, shape, options in (
        (
            lightgbm.LGBMClassifier,
            "LightGbmLGBMClassifier",
            convert_lightgbm,
            calculate_linear_classifier_output_shapes,
            classifier,
        ),
        (
            lightgbm.LGBMRegressor,
            "LightGbmLGBMRegressor",
            convert_lightgbm,
            calculate_linear_regressor_output_shapes,
            {"split": None},
        ),
        (
            xgboost.XGBClassifier,
            "XGBoostXGBClassifier",
            convert_xgboost,
            calculate_linear_classifier_output_shapes,
            classifier,
        ),
        (
            xgboost.XGBRegressor,
            "XGBoostXGBRegressor",
            convert_xgboost,
            calculate_linear_regressor_output_shapes,
            {},
        ),
    ):
        update_registered_converter(made, alias, shape, convert, options=options)


def light(model, zipmap=True):
    return onnxmltools.convert_lightgbm(
        model, initial_types=INPUT, target_opset=15, zipmap=zipmap
    )


def extreme(model):
    return onnxmltools.convert_xgboost(model, initial_types=INPUT, target_opset=15)


def cat(model):
    with tempfile.NamedTemporaryFile(suffix=".onnx") as file:
        model.save_model(file.name, format="onnx")
        return onnx.load(file.name)


def lightgbm_cases():
    shared = {"n_estimators": 6, "num_leaves": 7, "verbose": -1}
    for x, kind in ((X, "plain"), (MISSING, "missing"), (COUNTS, "counts")):
        for y in (CLASSES, TWO):
            model = lightgbm.LGBMClassifier(**shared).fit(x, y)
            for zipmap in (True, False):
                yield Case(
                    f"LGBMClassifier-{kind}-{len(set(y))}-zipmap_{zipmap}",
                    model,
                    x.astype("f4"),
                    convert=lambda m, z=zipmap: light(m, z),
                )
        yield Case(
            f"LGBMRegressor-{kind}",
            lightgbm.LGBMRegressor(**shared).fit(x, Y),
            x.astype("f4"),
            convert=light,
        )
    for objective in ("poisson", "gamma", "tweedie", "quantile", "mae", "huber"):
        y = POSITIVE if objective in ("poisson", "gamma", "tweedie") else Y
        model = lightgbm.LGBMRegressor(objective=objective, **shared).fit(X, y)
        yield Case(f"LGBMRegressor-{objective}", model, X.astype("f4"), convert=light)
    for kind in ("dart", "rf"):
        more = {"boosting_type": kind, "bagging_freq": 1, "bagging_fraction": 0.5}
        model = lightgbm.LGBMClassifier(**more, **shared).fit(X, TWO)
        yield Case(f"LGBMClassifier-{kind}", model, X.astype("f4"), convert=light)
    whole = {**shared, "objective": "multiclassova", "num_class": 3}
    model = lightgbm.train(
        {k: v for k, v in whole.items() if k != "n_estimators"}, lightgbm.Dataset(X, CLASSES), 5
    )
    yield Case("LGBMBooster-ova", model, X.astype("f4"), convert=light)


def xgboost_cases():
    shared = {"n_estimators": 6, "max_depth": 3}
    for x, kind in ((X, "plain"), (MISSING, "missing")):
        for y in (CLASSES, TWO):
            for base in (None, 0.4):
                model = xgboost.XGBClassifier(base_score=base, **shared).fit(x, y)
                yield Case(
                    f"XGBClassifier-{kind}-{len(set(y))}-{base}",
                    model,
                    x.astype("f4"),
                    convert=extreme,
                )
        yield Case(
            f"XGBRegressor-{kind}",
            xgboost.XGBRegressor(**shared).fit(x, Y),
            x.astype("f4"),
            convert=extreme,
        )
    for objective, y in (
        ("reg:logistic", TWO),
        ("count:poisson", POSITIVE),
        ("reg:gamma", POSITIVE),
        ("reg:tweedie", POSITIVE),
        ("reg:absoluteerror", Y),
    ):
        model = xgboost.XGBRegressor(objective=objective, **shared).fit(X, y)
        yield Case(
            f"XGBRegressor-{objective.replace(':', '_')}", model, X.astype("f4"), convert=extreme
        )
    for name, make, y in (
        ("XGBRFClassifier", xgboost.XGBRFClassifier, CLASSES),
        ("XGBRFRegressor", xgboost.XGBRFRegressor, Y),
    ):
        yield Case(
            name, make(n_estimators=5, max_depth=3).fit(X, y), X.astype("f4"), convert=extreme
        )


def catboost_cases():
    shared = {"iterations": 6, "depth": 3, "verbose": False, "allow_writing_files": False}
    for y in (CLASSES, TWO):
        model = catboost.CatBoostClassifier(**shared).fit(X, y)
        yield Case(f"CatBoostClassifier-{len(set(y))}", model, X.astype("f4"), convert=cat)
    model = catboost.CatBoostClassifier(**shared).fit(X, np.array(["no", "yes"])[TWO])
    yield Case("CatBoostClassifier-words", model, X.astype("f4"), convert=cat)
    for loss in ("RMSE", "MAE", "Quantile"):
        model = catboost.CatBoostRegressor(loss_function=loss, **shared).fit(X, Y)
        yield Case(f"CatBoostRegressor-{loss}", model, X.astype("f4"), convert=cat)
    y = np.stack([Y, X[:, 0]], axis=1)
    model = catboost.CatBoostRegressor(loss_function="MultiRMSE", **shared).fit(X, y)
    yield Case("CatBoostRegressor-MultiRMSE", model, X.astype("f4"), convert=cat)


def pipeline_cases():
    register()
    for name, last, y in (
        ("LGBM", lightgbm.LGBMClassifier(n_estimators=5, verbose=-1), CLASSES),
        ("XGB", xgboost.XGBClassifier(n_estimators=5), CLASSES),
        ("LGBM-regressor", lightgbm.LGBMRegressor(n_estimators=5, verbose=-1), Y),
        ("XGB-regressor", xgboost.XGBRegressor(n_estimators=5), Y),
    ):
        model = pipeline.make_pipeline(preprocessing.StandardScaler(), last).fit(X, y)
        for chosen in ({}, {"zipmap": False}) if y is CLASSES else ({},):
            yield Case(
                f"Pipeline-{name}{'-tensor' if chosen else ''}",
                model,
                X.astype("f4"),
                [("X", types.FloatTensorType([None, X.shape[1]]))],
                {id(last): chosen} if chosen else None,
                {"": 17, "ai.onnx.ml": 3},
            )


PARTS = (lightgbm_cases, xgboost_cases, catboost_cases, pipeline_cases)
