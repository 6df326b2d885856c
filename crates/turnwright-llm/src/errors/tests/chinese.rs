//! Errors of gateways that speak Chinese, most of them without a code.

use super::check;
use crate::ErrorKind;

#[test]
fn errors_of_gateways_in_chinese_are_recognised() {
    let quota = [
        (
            "new-api",
            403,
            r#"{"error":{"message":"用户额度不足, 剩余额度: ＄-0.000002 (request id: 20260819)","type":"new_api_error"}}"#,
        ),
        (
            "a relay of new-api",
            403,
            r#"{"error":{"message":"Access denied: 预扣费额度失败, 用户剩余额度: ＄0.53, 需要预扣费额度: ＄2.90"}}"#,
        ),
        (
            "one-api",
            403,
            r#"{"error":{"message":"token quota is not enough","code":"pre_consume_token_quota_failed"}}"#,
        ),
        ("one-api", 401, r#"{"error":{"message":"该令牌额度已用尽","type":"one_api_error"}}"#),
        ("a relay", 429, r#"{"error":{"message":"今日额度已耗尽"}}"#),
        ("a relay", 403, r#"{"error":{"message":"账户已欠费，请充值"}}"#),
        ("a relay", 403, r#"{"error":{"message":"账号欠费停服"}}"#),
    ];
    check(ErrorKind::Quota, &quota);
    let no_model = [
        (
            "one-api",
            503,
            r#"{"error":{"message":"当前分组 default 下对于模型 gpt-4o-mini 无可用渠道","type":"one_api_error"}}"#,
        ),
        ("new-api", 403, r#"{"error":{"message":"该令牌无权访问模型 m","type":"new_api_error"}}"#),
    ];
    check(ErrorKind::ModelNotFound, &no_model);
    let auth = [
        ("one-api", 401, r#"{"error":{"message":"无效的令牌"}}"#),
        ("a relay", 401, r#"{"error":{"message":"密钥无效，请检查密钥及是否欠费"}}"#),
    ];
    check(ErrorKind::Auth, &auth);
    let rate_limit = [
        ("new-api", 429, r#"{"error":{"message":"当前分组上游负载已饱和，请稍后再试"}}"#),
        ("a relay", 429, r#"{"error":{"message":"每分钟令牌额度不足，请稍后再试"}}"#),
    ];
    check(ErrorKind::RateLimit, &rate_limit);
}
