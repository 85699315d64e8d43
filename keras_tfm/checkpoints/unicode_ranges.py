"""Classes of characters as the `tokenizers` library has them, for RE2.

Written by tests/reference/unicode_ranges.py. TensorFlow's RE2 knows an older Unicode
than the reference's regular expressions and a newer one than its BERT rules.
"""

WHITESPACE = (
    r"\x{9}-\x{D}\x{20}\x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}-\x{2029}"
    r"\x{202F}\x{205F}\x{3000}"
)
NUMERIC = (
    r"\x{10D40}-\x{10D49}\x{116D0}-\x{116E3}\x{11BF0}-\x{11BF9}\x{11DE0}-\x{11DE9}"
    r"\x{16130}-\x{16139}\x{16D70}-\x{16D79}\x{16FF4}-\x{16FF6}\x{1CCF0}-\x{1CCF9}"
    r"\x{1E5F1}-\x{1E5FA}"
)
BERT_CONTROL = (
    r"\x{0}-\x{8}\x{B}-\x{C}\x{E}-\x{1F}\x{7F}-\x{9F}\x{AD}\x{600}-\x{605}\x{61C}"
    r"\x{6DD}\x{70F}\x{180E}\x{200B}-\x{200F}\x{202A}-\x{202E}\x{2060}-\x{2064}"
    r"\x{2066}-\x{206F}\x{E000}-\x{F8FF}\x{FEFF}\x{FFF9}-\x{FFFB}\x{FFFD}\x{110BD}"
    r"\x{1BCA0}-\x{1BCA3}\x{1D173}-\x{1D17A}\x{E0001}\x{E0020}-\x{E007F}"
    r"\x{F0000}-\x{FFFFD}\x{100000}-\x{10FFFD}"
)
BERT_CJK = (
    r"\x{3400}-\x{4DBF}\x{4E00}-\x{9FFF}\x{F900}-\x{FAFF}\x{20000}-\x{2A6DF}"
    r"\x{2A700}-\x{2B81F}\x{2B920}-\x{2CEAF}\x{2F800}-\x{2FA1F}"
)
BERT_PUNCTUATION = (
    r"\x{21}-\x{2F}\x{3A}-\x{40}\x{5B}-\x{60}\x{7B}-\x{7E}\x{A1}\x{A7}\x{AB}"
    r"\x{B6}-\x{B7}\x{BB}\x{BF}\x{37E}\x{387}\x{55A}-\x{55F}\x{589}-\x{58A}"
    r"\x{5BE}\x{5C0}\x{5C3}\x{5C6}\x{5F3}-\x{5F4}\x{609}-\x{60A}\x{60C}-\x{60D}"
    r"\x{61B}\x{61E}-\x{61F}\x{66A}-\x{66D}\x{6D4}\x{700}-\x{70D}\x{7F7}-\x{7F9}"
    r"\x{830}-\x{83E}\x{85E}\x{964}-\x{965}\x{970}\x{AF0}\x{DF4}\x{E4F}"
    r"\x{E5A}-\x{E5B}\x{F04}-\x{F12}\x{F14}\x{F3A}-\x{F3D}\x{F85}\x{FD0}-\x{FD4}"
    r"\x{FD9}-\x{FDA}\x{104A}-\x{104F}\x{10FB}\x{1360}-\x{1368}\x{1400}"
    r"\x{166D}-\x{166E}\x{169B}-\x{169C}\x{16EB}-\x{16ED}\x{1735}-\x{1736}"
    r"\x{17D4}-\x{17D6}\x{17D8}-\x{17DA}\x{1800}-\x{180A}\x{1944}-\x{1945}"
    r"\x{1A1E}-\x{1A1F}\x{1AA0}-\x{1AA6}\x{1AA8}-\x{1AAD}\x{1B5A}-\x{1B60}"
    r"\x{1BFC}-\x{1BFF}\x{1C3B}-\x{1C3F}\x{1C7E}-\x{1C7F}\x{1CC0}-\x{1CC7}\x{1CD3}"
    r"\x{2010}-\x{2027}\x{2030}-\x{2043}\x{2045}-\x{2051}\x{2053}-\x{205E}"
    r"\x{207D}-\x{207E}\x{208D}-\x{208E}\x{2308}-\x{230B}\x{2329}-\x{232A}"
    r"\x{2768}-\x{2775}\x{27C5}-\x{27C6}\x{27E6}-\x{27EF}\x{2983}-\x{2998}"
    r"\x{29D8}-\x{29DB}\x{29FC}-\x{29FD}\x{2CF9}-\x{2CFC}\x{2CFE}-\x{2CFF}\x{2D70}"
    r"\x{2E00}-\x{2E2E}\x{2E30}-\x{2E42}\x{3001}-\x{3003}\x{3008}-\x{3011}"
    r"\x{3014}-\x{301F}\x{3030}\x{303D}\x{30A0}\x{30FB}\x{A4FE}-\x{A4FF}"
    r"\x{A60D}-\x{A60F}\x{A673}\x{A67E}\x{A6F2}-\x{A6F7}\x{A874}-\x{A877}"
    r"\x{A8CE}-\x{A8CF}\x{A8F8}-\x{A8FA}\x{A8FC}\x{A92E}-\x{A92F}\x{A95F}"
    r"\x{A9C1}-\x{A9CD}\x{A9DE}-\x{A9DF}\x{AA5C}-\x{AA5F}\x{AADE}-\x{AADF}"
    r"\x{AAF0}-\x{AAF1}\x{ABEB}\x{FD3E}-\x{FD3F}\x{FE10}-\x{FE19}\x{FE30}-\x{FE52}"
    r"\x{FE54}-\x{FE61}\x{FE63}\x{FE68}\x{FE6A}-\x{FE6B}\x{FF01}-\x{FF03}"
    r"\x{FF05}-\x{FF0A}\x{FF0C}-\x{FF0F}\x{FF1A}-\x{FF1B}\x{FF1F}-\x{FF20}"
    r"\x{FF3B}-\x{FF3D}\x{FF3F}\x{FF5B}\x{FF5D}\x{FF5F}-\x{FF65}\x{10100}-\x{10102}"
    r"\x{1039F}\x{103D0}\x{1056F}\x{10857}\x{1091F}\x{1093F}\x{10A50}-\x{10A58}"
    r"\x{10A7F}\x{10AF0}-\x{10AF6}\x{10B39}-\x{10B3F}\x{10B99}-\x{10B9C}"
    r"\x{11047}-\x{1104D}\x{110BB}-\x{110BC}\x{110BE}-\x{110C1}\x{11140}-\x{11143}"
    r"\x{11174}-\x{11175}\x{111C5}-\x{111C9}\x{111CD}\x{111DB}\x{111DD}-\x{111DF}"
    r"\x{11238}-\x{1123D}\x{112A9}\x{114C6}\x{115C1}-\x{115D7}\x{11641}-\x{11643}"
    r"\x{1173C}-\x{1173E}\x{12470}-\x{12474}\x{16A6E}-\x{16A6F}\x{16AF5}"
    r"\x{16B37}-\x{16B3B}\x{16B44}\x{1BC9F}\x{1DA87}-\x{1DA8B}"
)
BERT_ACCENTS = (
    r"\x{300}-\x{36F}\x{483}-\x{487}\x{591}-\x{5BD}\x{5BF}\x{5C1}-\x{5C2}"
    r"\x{5C4}-\x{5C5}\x{5C7}\x{610}-\x{61A}\x{64B}-\x{65F}\x{670}\x{6D6}-\x{6DC}"
    r"\x{6DF}-\x{6E4}\x{6E7}-\x{6E8}\x{6EA}-\x{6ED}\x{711}\x{730}-\x{74A}"
    r"\x{7A6}-\x{7B0}\x{7EB}-\x{7F3}\x{816}-\x{819}\x{81B}-\x{823}\x{825}-\x{827}"
    r"\x{829}-\x{82D}\x{859}-\x{85B}\x{8E3}-\x{902}\x{93A}\x{93C}\x{941}-\x{948}"
    r"\x{94D}\x{951}-\x{957}\x{962}-\x{963}\x{981}\x{9BC}\x{9C1}-\x{9C4}\x{9CD}"
    r"\x{9E2}-\x{9E3}\x{A01}-\x{A02}\x{A3C}\x{A41}-\x{A42}\x{A47}-\x{A48}"
    r"\x{A4B}-\x{A4D}\x{A51}\x{A70}-\x{A71}\x{A75}\x{A81}-\x{A82}\x{ABC}"
    r"\x{AC1}-\x{AC5}\x{AC7}-\x{AC8}\x{ACD}\x{AE2}-\x{AE3}\x{B01}\x{B3C}\x{B3F}"
    r"\x{B41}-\x{B44}\x{B4D}\x{B56}\x{B62}-\x{B63}\x{B82}\x{BC0}\x{BCD}\x{C00}"
    r"\x{C3E}-\x{C40}\x{C46}-\x{C48}\x{C4A}-\x{C4D}\x{C55}-\x{C56}\x{C62}-\x{C63}"
    r"\x{C81}\x{CBC}\x{CBF}\x{CC6}\x{CCC}-\x{CCD}\x{CE2}-\x{CE3}\x{D01}"
    r"\x{D41}-\x{D44}\x{D4D}\x{D62}-\x{D63}\x{DCA}\x{DD2}-\x{DD4}\x{DD6}\x{E31}"
    r"\x{E34}-\x{E3A}\x{E47}-\x{E4E}\x{EB1}\x{EB4}-\x{EB9}\x{EBB}-\x{EBC}"
    r"\x{EC8}-\x{ECD}\x{F18}-\x{F19}\x{F35}\x{F37}\x{F39}\x{F71}-\x{F7E}"
    r"\x{F80}-\x{F84}\x{F86}-\x{F87}\x{F8D}-\x{F97}\x{F99}-\x{FBC}\x{FC6}"
    r"\x{102D}-\x{1030}\x{1032}-\x{1037}\x{1039}-\x{103A}\x{103D}-\x{103E}"
    r"\x{1058}-\x{1059}\x{105E}-\x{1060}\x{1071}-\x{1074}\x{1082}\x{1085}-\x{1086}"
    r"\x{108D}\x{109D}\x{135D}-\x{135F}\x{1712}-\x{1714}\x{1732}-\x{1734}"
    r"\x{1752}-\x{1753}\x{1772}-\x{1773}\x{17B4}-\x{17B5}\x{17B7}-\x{17BD}\x{17C6}"
    r"\x{17C9}-\x{17D3}\x{17DD}\x{180B}-\x{180D}\x{18A9}\x{1920}-\x{1922}"
    r"\x{1927}-\x{1928}\x{1932}\x{1939}-\x{193B}\x{1A17}-\x{1A18}\x{1A1B}\x{1A56}"
    r"\x{1A58}-\x{1A5E}\x{1A60}\x{1A62}\x{1A65}-\x{1A6C}\x{1A73}-\x{1A7C}\x{1A7F}"
    r"\x{1AB0}-\x{1ABD}\x{1B00}-\x{1B03}\x{1B34}\x{1B36}-\x{1B3A}\x{1B3C}\x{1B42}"
    r"\x{1B6B}-\x{1B73}\x{1B80}-\x{1B81}\x{1BA2}-\x{1BA5}\x{1BA8}-\x{1BA9}"
    r"\x{1BAB}-\x{1BAD}\x{1BE6}\x{1BE8}-\x{1BE9}\x{1BED}\x{1BEF}-\x{1BF1}"
    r"\x{1C2C}-\x{1C33}\x{1C36}-\x{1C37}\x{1CD0}-\x{1CD2}\x{1CD4}-\x{1CE0}"
    r"\x{1CE2}-\x{1CE8}\x{1CED}\x{1CF4}\x{1CF8}-\x{1CF9}\x{1DC0}-\x{1DF5}"
    r"\x{1DFC}-\x{1DFF}\x{20D0}-\x{20DC}\x{20E1}\x{20E5}-\x{20F0}\x{2CEF}-\x{2CF1}"
    r"\x{2D7F}\x{2DE0}-\x{2DFF}\x{302A}-\x{302D}\x{3099}-\x{309A}\x{A66F}"
    r"\x{A674}-\x{A67D}\x{A69E}-\x{A69F}\x{A6F0}-\x{A6F1}\x{A802}\x{A806}\x{A80B}"
    r"\x{A825}-\x{A826}\x{A8C4}\x{A8E0}-\x{A8F1}\x{A926}-\x{A92D}\x{A947}-\x{A951}"
    r"\x{A980}-\x{A982}\x{A9B3}\x{A9B6}-\x{A9B9}\x{A9BC}\x{A9E5}\x{AA29}-\x{AA2E}"
    r"\x{AA31}-\x{AA32}\x{AA35}-\x{AA36}\x{AA43}\x{AA4C}\x{AA7C}\x{AAB0}"
    r"\x{AAB2}-\x{AAB4}\x{AAB7}-\x{AAB8}\x{AABE}-\x{AABF}\x{AAC1}\x{AAEC}-\x{AAED}"
    r"\x{AAF6}\x{ABE5}\x{ABE8}\x{ABED}\x{FB1E}\x{FE00}-\x{FE0F}\x{FE20}-\x{FE2F}"
    r"\x{101FD}\x{102E0}\x{10376}-\x{1037A}\x{10A01}-\x{10A03}\x{10A05}-\x{10A06}"
    r"\x{10A0C}-\x{10A0F}\x{10A38}-\x{10A3A}\x{10A3F}\x{10AE5}-\x{10AE6}\x{11001}"
    r"\x{11038}-\x{11046}\x{1107F}-\x{11081}\x{110B3}-\x{110B6}\x{110B9}-\x{110BA}"
    r"\x{11100}-\x{11102}\x{11127}-\x{1112B}\x{1112D}-\x{11134}\x{11173}"
    r"\x{11180}-\x{11181}\x{111B6}-\x{111BE}\x{111CA}-\x{111CC}\x{1122F}-\x{11231}"
    r"\x{11234}\x{11236}-\x{11237}\x{112DF}\x{112E3}-\x{112EA}\x{11300}-\x{11301}"
    r"\x{1133C}\x{11340}\x{11366}-\x{1136C}\x{11370}-\x{11374}\x{114B3}-\x{114B8}"
    r"\x{114BA}\x{114BF}-\x{114C0}\x{114C2}-\x{114C3}\x{115B2}-\x{115B5}"
    r"\x{115BC}-\x{115BD}\x{115BF}-\x{115C0}\x{115DC}-\x{115DD}\x{11633}-\x{1163A}"
    r"\x{1163D}\x{1163F}-\x{11640}\x{116AB}\x{116AD}\x{116B0}-\x{116B5}\x{116B7}"
    r"\x{1171D}-\x{1171F}\x{11722}-\x{11725}\x{11727}-\x{1172B}\x{16AF0}-\x{16AF4}"
    r"\x{16B30}-\x{16B36}\x{16F8F}-\x{16F92}\x{1BC9D}-\x{1BC9E}\x{1D167}-\x{1D169}"
    r"\x{1D17B}-\x{1D182}\x{1D185}-\x{1D18B}\x{1D1AA}-\x{1D1AD}\x{1D242}-\x{1D244}"
    r"\x{1DA00}-\x{1DA36}\x{1DA3B}-\x{1DA6C}\x{1DA75}\x{1DA84}\x{1DA9B}-\x{1DA9F}"
    r"\x{1DAA1}-\x{1DAAF}\x{1E8D0}-\x{1E8D6}\x{E0100}-\x{E01EF}"
)
MARKS = r"\x{1CF2}-\x{1CF3}"
WORD = (
    r"\x{897}\x{1C89}-\x{1C8A}\x{200C}-\x{200D}\x{24B6}-\x{24E9}\x{A7CB}-\x{A7CD}"
    r"\x{A7DA}-\x{A7DC}\x{105C0}-\x{105F3}\x{10D40}-\x{10D65}\x{10D69}-\x{10D6D}"
    r"\x{10D6F}-\x{10D85}\x{10EC2}-\x{10EC4}\x{10EFC}\x{11380}-\x{11389}\x{1138B}"
    r"\x{1138E}\x{11390}-\x{113B5}\x{113B7}-\x{113C0}\x{113C2}\x{113C5}"
    r"\x{113C7}-\x{113CA}\x{113CC}-\x{113D3}\x{113E1}-\x{113E2}\x{116D0}-\x{116E3}"
    r"\x{11BC0}-\x{11BE0}\x{11BF0}-\x{11BF9}\x{11F5A}\x{13460}-\x{143FA}"
    r"\x{16100}-\x{16139}\x{16D40}-\x{16D6C}\x{16D70}-\x{16D79}\x{18CFF}"
    r"\x{1CCF0}-\x{1CCF9}\x{1E5D0}-\x{1E5FA}\x{1F130}-\x{1F149}\x{1F150}-\x{1F169}"
    r"\x{1F170}-\x{1F189}\x{2EBF0}-\x{2EE5D}"
)
NEWER = {  # beyond what RE2 calls by this name
    "L": (
        r"\x{1C89}-\x{1C8A}\x{A7CB}-\x{A7CD}\x{A7DA}-\x{A7DC}\x{105C0}-"
        r"\x{105F3}\x{10D4A}-\x{10D65}\x{10D6F}-\x{10D85}\x{10EC2}-\x{10EC4}\x{11380}-"
        r"\x{11389}\x{1138B}\x{1138E}\x{11390}-"
        r"\x{113B5}\x{113B7}\x{113D1}\x{113D3}\x{11BC0}-\x{11BE0}\x{13460}-"
        r"\x{143FA}\x{16100}-\x{1611D}\x{16D40}-\x{16D6C}\x{18CFF}\x{1E5D0}-"
        r"\x{1E5ED}\x{1E5F0}\x{2EBF0}-\x{2EE5D}"
    ),
    "Lu": (r"\x{1C89}\x{A7CB}-\x{A7CC}\x{A7DA}\x{A7DC}\x{10D50}-\x{10D65}"),
    "Ll": (r"\x{1C8A}\x{A7CD}\x{A7DB}\x{10D70}-\x{10D85}"),
    "Lt": (r""),
    "Lm": (r"\x{10D4E}\x{10D6F}\x{16D40}-\x{16D42}\x{16D6B}-\x{16D6C}"),
    "Lo": (
        r"\x{105C0}-\x{105F3}\x{10D4A}-\x{10D4D}\x{10D4F}\x{10EC2}-\x{10EC4}\x{11380}-"
        r"\x{11389}\x{1138B}\x{1138E}\x{11390}-"
        r"\x{113B5}\x{113B7}\x{113D1}\x{113D3}\x{11BC0}-\x{11BE0}\x{13460}-"
        r"\x{143FA}\x{16100}-\x{1611D}\x{16D43}-\x{16D6A}\x{18CFF}\x{1E5D0}-"
        r"\x{1E5ED}\x{1E5F0}\x{2EBF0}-\x{2EE5D}"
    ),
    "M": (
        r"\x{897}\x{10D69}-\x{10D6D}\x{10EFC}\x{113B8}-"
        r"\x{113C0}\x{113C2}\x{113C5}\x{113C7}-\x{113CA}\x{113CC}-"
        r"\x{113D0}\x{113D2}\x{113E1}-\x{113E2}\x{11F5A}\x{1611E}-\x{1612F}\x{1E5EE}-"
        r"\x{1E5EF}"
    ),
    "N": (
        r"\x{10D40}-\x{10D49}\x{116D0}-\x{116E3}\x{11BF0}-\x{11BF9}\x{16130}-"
        r"\x{16139}\x{16D70}-\x{16D79}\x{1CCF0}-\x{1CCF9}\x{1E5F1}-\x{1E5FA}"
    ),
}
