//! Text stays text.

use super::*;

#[test]
fn text_cannot_become_markup() {
    assert_eq!(
        escape("<script>alert('1') & \"2\"</script>\u{1b}"),
        "&lt;script&gt;alert(&#39;1&#39;) &amp; &quot;2&quot;&lt;/script&gt;\u{fffd}"
    );
    let mut drawing = SvgDrawing::default();
    drawing.text("tick", SvgPoint::new(1.0, 2.0), Anchor::End, "</text><image href='x'/>");
    assert_eq!(drawing.body().matches('<').count(), 2);
}

#[test]
fn one_point_is_no_line() {
    let mut drawing = SvgDrawing::default();
    drawing.path("line", &[SvgPoint::new(1.0, 1.0)]);
    assert_eq!(drawing.body(), "");
    drawing.path("line", &[SvgPoint::new(1.0, 1.0), SvgPoint::new(2.0, 3.0)]);
    assert_eq!(drawing.body(), "<path class=\"line\" d=\"M1.0 1.0L2.0 3.0\"/>\n");
}
